"""Files of a cluster: rank bindings, hosts and rankfiles, found, read and checked."""
