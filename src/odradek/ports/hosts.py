"""Names and addresses of hosts."""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

_IPV4_IN_IPV6: Final = "::ffff:"
"""What an IPv6 socket puts before the IPv4 address of its peer."""


def host_of_header(header: str) -> str:
    """The host of a Host header, without its port and brackets, in lower case."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


def machine_name() -> str:
    """The host name that this machine has given itself; no name service is asked."""
    return socket.gethostname()


def is_loopback(host: str) -> bool:
    """Whether the host is `localhost` or an address of loopback, which only programs of this machine reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_address(host: str) -> bool:
    """Whether the text is an address, and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def normalized(host: str) -> str:
    """The one spelling of an address that is compared; any other text as it is."""
    address = host.partition("%")[0]
    if address.lower().startswith(_IPV4_IN_IPV6) and "." in address:
        address = address[len(_IPV4_IN_IPV6) :]
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return host
