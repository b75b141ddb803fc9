"""Hosts for tests:

Linux namespaces with a network, name, process table, working folder and sshd of their own, joined
by a bridge.

    switch (a network namespace)  br0 -+- port1 ==== eth0  node-1  10.77.0.1
                                       +- port2 ==== eth0  node-2  10.77.0.2
                                       +- port3 ==== eth0  node-3  10.77.0.3

All files are in one temporary folder. Inside a host that folder's `node-N/SITE` is mounted as
`SITE`, so that a path means another folder on each host, and TMPDIR is `node-N/tmp` (Open MPI's
files are named after process ids, which two hosts may both have). A host's ssh finds its keys
through an /etc/ssh/ssh_config that only the host sees. Each host is one process, init of its own
process table: when that one ends, all of the host is gone."""

import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

OF_ITS_OWN = ("--uts", "--ipc", "--mount", "--pid", "--fork", "--mount-proc")  # of a host
PROGRAMS = ("sshd", "ssh", "ssh-keygen", "rsync", "ip", "unshare", "nsenter", "mount")
# a blank and a letter that is not ASCII in the path, which sync, doctor and mpirun take to the
# others
SITE = "my größe"
# The environment of the tests, where a host sees it. Open MPI does not quote its own path for the
# shell of another host, so that path must have no blank in it, as the project's may have here.
PYTHON = "/run/environment/bin/python"
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])

# Init of a host: names it, mounts what only it sees, starts sshd, and buries the processes that
# have lost their parent.
INIT = """
import os, pwd, socket, subprocess, sys, time
root, number, site, environment = sys.argv[1:]
mine = f"{root}/node-{number}"
socket.sethostname(f"node-{number}")
def run(*words): subprocess.run(words, check=True)
run("mount", "--bind", f"{mine}/{os.path.basename(site)}", site)
run("mount", "--bind", f"{root}/ssh_config", "/etc/ssh/ssh_config")
run("mount", "--bind", f"{root}/hosts", "/etc/hosts")
if os.path.exists(start := pwd.getpwuid(0).pw_dir + "/.bashrc"):
    run("mount", "--bind", "/dev/null", start)  # what root's shells do is no part of a test
run("mount", "-t", "tmpfs", "none", "/dev/shm")
run("mount", "-t", "tmpfs", "none", "/run")
os.mkdir("/run/sshd", 0o755)
os.mkdir("/run/environment")
run("mount", "--bind", environment, "/run/environment")
run("ip", "link", "set", "lo", "up")
while not os.path.exists("/sys/class/net/eth0") and subprocess.run(["ip", "link", "show", "eth0"], capture_output=True).returncode:
    time.sleep(0.02)  # until the other end is plugged in
run("ip", "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
run("ip", "link", "set", "eth0", "up")
subprocess.Popen([SSHD, "-D", "-f", f"{mine}/sshd_config", "-E", f"{mine}/sshd.log"], env={"PATH": os.environ["PATH"]})
open(f"{mine}/up", "w").close()
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(0.1)
"""
SSHD = """
HostKey {mine}/host_key
AuthorizedKeysFile {mine}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
MaxStartups 100
SetEnv TMPDIR={mine}/tmp
"""
SSH = """
Host node-*
  User root
  IdentityFile {root}/key
  IdentitiesOnly yes
  UserKnownHostsFile {root}/known_hosts
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
"""


def missing():
    """What this machine lacks for hosts of this kind, in one line; "" where it has all."""
    if lacking := [name for name in PROGRAMS if not shutil.which(name, path=PATH)]:
        return f"{', '.join(lacking)} not installed (apt install openssh-server rsync iproute2)"
    if os.geteuid():
        return "needs root"
    probe = "ip link add name ttkit0 type bridge && ip link add ttkit1 type veth peer name ttkit2"
    words = ["unshare", "--net", *OF_ITS_OWN, "sh", "-c", probe]
    done = subprocess.run(words, env=os.environ | {"PATH": PATH}, capture_output=True, text=True)
    why = f"not allowed here: {done.stderr.strip()[:200]}"
    return why if done.returncode else ""


class Hosts:
    """Some hosts, up while the `with` block runs.

    Args:
        folder: an empty temporary folder; SITE in it is each host's own working folder.
        number: how many hosts.
    """

    def __init__(self, folder, number=3):
        self.folder, self.site = pathlib.Path(folder), pathlib.Path(folder) / SITE
        self.names = [f"node-{n}" for n in range(1, number + 1)]
        self._processes = []  # the switch, then the hosts
        self._inits = {}

    def __enter__(self):
        try:
            self._files()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error):
        for process in self._processes:
            # unshare takes its child, init, with it, and init its whole process table
            process.kill()
        for process in self._processes:
            process.wait()

    def _files(self):
        self.site.mkdir()
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f"]
        subprocess.run([*key, self.folder / "key"], check=True)
        known, hosts = [], ["127.0.0.1 localhost\n"]
        for number, name in enumerate(self.names, 1):
            mine = self.folder / name
            (mine / SITE).mkdir(parents=True)
            (mine / "tmp").mkdir()
            subprocess.run([*key, mine / "host_key"], check=True)
            shutil.copy(self.folder / "key.pub", mine / "authorized_keys")
            (mine / "sshd_config").write_text(SSHD.format(mine=mine, root=self.folder))
            known.append(f"{name},10.77.0.{number} {(mine / 'host_key.pub').read_text()}")
            hosts.append(f"10.77.0.{number} {name}\n")
        (self.folder / "known_hosts").write_text("".join(known))
        (self.folder / "hosts").write_text("".join(hosts))
        (self.folder / "ssh_config").write_text(SSH.format(root=self.folder))

    def _start(self):
        kinds = ["--net", "--kill-child=KILL"]
        switch = self._unshare([*kinds, "--fork", "sleep", "infinity"])
        self._ip(switch, "link add name br0 type bridge")
        self._ip(switch, "link set br0 up")
        self._switch = switch
        init = INIT.replace("SSHD", repr(shutil.which("sshd", path=PATH)))
        for number, name in enumerate(self.names, 1):
            words = [*kinds, *OF_ITS_OWN, sys.executable, "-I", "-S", "-c", init]
            self._inits[name] = self._unshare(
                [*words, str(self.folder), str(number), str(self.site), sys.prefix]
            )
            port = f"port{number}"
            end = f"eth0 netns {self._inits[name]}"
            self._ip(switch, f"link add name {port} type veth peer name {end}")
            self._ip(switch, f"link set {port} master br0 up")
        until = time.monotonic() + 120
        while not all((self.folder / name / "up").exists() for name in self.names):
            if time.monotonic() > until or any(
                process.poll() is not None for process in self._processes
            ):
                raise RuntimeError("the hosts did not come up; their messages are above")
            time.sleep(0.02)
        for name in self.names[1:]:
            while self.call(self.names[0], ["ssh", "-o", "BatchMode=yes", name, "true"]).returncode:
                if time.monotonic() > until:
                    raise RuntimeError(
                        f"{name} does not answer: {(self.folder / name / 'sshd.log').read_text()}"
                    )
                time.sleep(0.05)

    def _unshare(self, words):
        """Start a process in namespaces of its own; the process id of what runs in them.

        It ends with this Python.
        """
        prctl = ctypes.CDLL(None).prctl
        process = subprocess.Popen(
            ["unshare", *words],
            env=os.environ | {"PATH": PATH},
            preexec_fn=lambda: prctl(1, signal.SIGKILL),
        )
        self._processes.append(process)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        until = time.monotonic() + 120
        while not (found := children.read_text().split()):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"unshare {' '.join(words[:8])} did not start")
            time.sleep(0.01)
        return int(found[0])

    def _ip(self, pid, command):
        words = ["nsenter", "-t", str(pid), "-n", "ip", *command.split()]
        subprocess.run(words, env=os.environ | {"PATH": PATH}, check=True)

    # ---- use

    def path(self, name, *parts):
        """Where this machine sees a file of a host's working folder."""
        return self.folder.joinpath(name, SITE, *parts)

    def words(self, name, words, cwd=None):
        """The command that runs another one on a host, as a user who has logged in there."""
        enter = f"nsenter -t {self._inits[name]} --net --uts --ipc --mount --pid env -C".split()
        return [*enter, str(cwd or self.site), *map(str, words)]

    def start(self, name, words, cwd=None, **environment):
        """Start a command on a host: a Popen with pipes."""
        others = ("TT_", "TTKIT_", "OMPI_", "PRTE_", "PMIX_", "SSH_")
        env = {key: text for key, text in os.environ.items() if not key.startswith(others)}
        own = {
            "TMPDIR": str(self.folder / name / "tmp"),
            "PRTE_MCA_prte_remote_tmpdir_base": str(self.folder / "prted"),
        }  # process ids begin anew on such hosts
        env |= {"PATH": PATH, **own, **environment}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        words = self.words(name, words, cwd)
        return subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, **pipes)

    def call(self, name, words, cwd=None, seconds=300, **environment):
        """Run a command on a host to its end: a CompletedProcess."""
        process = self.start(name, words, cwd, **environment)
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    @contextlib.contextmanager
    def unplugged(self, name):
        """A host's network cable is out: whoever waits for an answer hears nothing, not even a
        refusal.
        """
        port = f"port{self.names.index(name) + 1}"
        self._ip(self._switch, f"link set {port} down")
        try:
            yield
        finally:
            self._ip(self._switch, f"link set {port} up")
