"""The names in a certificate: that of its owner, and the hosts at which the owner is found."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from colonnade.errors import InputError

ORGANISATION = "Colonnade federation"
LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


def authority_name(name: str) -> x509.Name:
    """A name that no party can have: a certificate whose subject is its issuer counts as
    self-signed."""
    if not name.strip() or not name.isprintable() or len(name.encode()) > 64:
        raise InputError(
            f"name: {name!r} is not possible for an authority; expected 1 to 64 bytes of text, "
            "for example the name of the federation."
        )
    organisation = x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANISATION)
    return x509.Name([organisation, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def party_name(party: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, party)])


def common_name(path: Path, subject: x509.Name) -> str:
    """The only common name. A second one is refused: the access rules of the network might use
    it."""
    names = [str(name.value) for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if len(names) != 1:
        raise InputError(f"{path}: has {len(names)} common names {names}; expected the party's.")
    return names[0]


def host_names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    names = [_host_name(host) for host in dict.fromkeys(hosts)]
    if not names:
        raise InputError("hosts: at least one name or address is needed, for example localhost.")
    return names


def _host_name(host: str) -> x509.GeneralName:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        labels = host.split(".")
        if len(host) > 253 or labels[-1].isdigit() or not all(map(LABEL.fullmatch, labels)):
            raise InputError(
                f"hosts: {host!r} is neither a host name nor an IP address; give it alone, "
                "without protocol and port, for example clinic.example or 10.0.0.7."
            ) from None
        return x509.DNSName(host)
    if address.is_unspecified:
        raise InputError(
            f"hosts: {host} stands for every address of a machine; give the name or the address "
            "at which others connect."
        )
    return x509.IPAddress(address)


def alternative_names(extensions: x509.Extensions) -> list[x509.GeneralName]:
    try:
        return list(extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []
