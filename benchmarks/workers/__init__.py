"""The rows as each peer does them."""
