"""A machine's worth of networks that no process outside sees: one namespace for each server, on one bridge, cut one
way.

`contained` runs a module in a network, mount and process namespace of its own, as root or, if the kernel lets ordinary
users have namespaces, without being root. Everything in it ends with it: servers, links, names.

A cut is silent and has a direction: the sender's entry for the receiver's hardware address is wrong, so its packets
reach no server. Neither end is notified; a broken switch does the same, and a closed socket does not.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from nyala.infra.preflight import contained_command

HUB = "10.77.0.254"
_NOBODY = "02:00:00:00:ff:ff"


def contained(module: str, *args: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run `python -m module args` in namespaces of its own. AssertionError if there can be none: no proof, no pass."""
    own = contained_command()
    tried = subprocess.run([*own, "ip", "link", "set", "lo", "up"], capture_output=True, text=True, check=False)
    assert tried.returncode == 0, (
        "this test needs network namespaces: root, or a kernel and a container that let users have them; "
        f"unshare and ip said: {tried.stderr.strip()}"
    )
    return subprocess.run(
        [*own, sys.executable, "-m", module, *args], capture_output=True, text=True, timeout=timeout_s, check=False
    )


def _ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True)


class Network:
    """The hub, which is where the caller is, and `places` namespaces around it. Only inside of `contained`."""

    def __init__(self, places: int) -> None:
        # Names of namespaces are files; a /run of its own keeps them from the machine's.
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
        Path("/run/netns").mkdir()
        _ip("link", "set", "lo", "up")
        _ip("link", "add", "br0", "address", self._hardware(0), "type", "bridge")
        _ip("link", "set", "br0", "up")
        _ip("addr", "add", f"{HUB}/24", "dev", "br0")
        self._places = range(1, places + 1)
        for place in self._places:
            _ip("netns", "add", f"s{place}")
            _ip("link", "add", f"v{place}", "type", "veth", "peer", "name", "e0", "netns", f"s{place}")
            _ip("link", "set", f"v{place}", "master", "br0", "up")
            _ip("-n", f"s{place}", "link", "set", "e0", "address", self._hardware(place))
            _ip("-n", f"s{place}", "addr", "add", f"{self.address(place)}/24", "dev", "e0")
            _ip("-n", f"s{place}", "link", "set", "e0", "up")
            _ip("-n", f"s{place}", "link", "set", "lo", "up")
        self.heal()

    @staticmethod
    def address(place: int) -> str:
        """Return the address at which the server of that place listens."""
        return f"10.77.0.{place}"

    @staticmethod
    def inside(place: int) -> tuple[str, ...]:
        """Return the beginning of a command line that runs in that place's namespace, in the same process."""
        return ("nsenter", f"--net=/run/netns/s{place}")

    @staticmethod
    def _hardware(place: int) -> str:
        return f"02:00:00:00:00:{place:02x}"

    def _knows(self, sender: int, receiver: int, hardware: str) -> None:
        entry = ("neigh", "replace", self.address(receiver), "lladdr", hardware, "dev", "e0", "nud", "permanent")
        _ip("-n", f"s{sender}", *entry)

    def cut(self, sender: int, receiver: int) -> None:
        """Let nothing that `sender` sends arrive at `receiver` any more."""
        self._knows(sender, receiver, _NOBODY)

    def isolate(self, place: int, *, inbound: bool = True, outbound: bool = True) -> None:
        """Cut a place off from the others, one way or both; the hub still reaches it, and it the hub."""
        for other in self._places:
            if other != place and inbound:
                self.cut(other, place)
            if other != place and outbound:
                self.cut(place, other)

    def heal(self) -> None:
        """Remove all cuts."""
        for sender in self._places:
            for receiver in self._places:
                if sender != receiver:
                    self._knows(sender, receiver, self._hardware(receiver))
