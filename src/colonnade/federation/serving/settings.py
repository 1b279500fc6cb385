"""How predictions are served: where, to whom, and within which limits."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass, field
from pathlib import Path

from colonnade.errors import InputError
from colonnade.federation.agreement.party_file import PartyFile
from colonnade.federation.member.folder import TOKEN
from colonnade.federation.member.messages import AT_ONCE

PORT = 8471
BACKLOG = 1024  # connections that wait to be accepted
LONGEST = 30.0  # seconds that a request may ask for at most


@dataclass(frozen=True)
class Limits:
    """What a request may ask for, and how much may wait."""

    rows: int = AT_ONCE  # keys of one request
    body: int = 2**20  # bytes of one request
    room: int = 8 * AT_ONCE  # keys that wait for an answer
    window: float = 0.004  # seconds: requests that come within are asked together
    seconds: float = 2.0  # for an answer, if the request does not say
    upload: float = 10.0  # seconds for the body of a request to come


@dataclass(frozen=True)
class Settings:
    host: str = "127.0.0.1"
    port: int = PORT
    token: bytes | None = None
    tls: bool = False  # both sides show a certificate of the federation
    allow: tuple[str, ...] = ()  # names in certificates that may ask, beside the party's own
    limits: Limits = field(default_factory=Limits)

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def open_to_all(self) -> bool:
        """Whether whoever reaches the port may ask."""
        return self.token is None and not self.tls

    def check(self, party: PartyFile) -> None:
        """Refuse what would show predictions to everybody."""
        if self.open_to_all and not self.loopback:
            raise InputError(
                f"--host {self.host}: other machines could ask for predictions without saying who "
                "they are; make a token with --new-token, or use --tls"
            )
        if self.tls and party.identity is None:
            raise InputError(
                f"--tls: {party.source} has no certificate, because the federation says transport "
                '= "tcp"; use a token'
            )
        if self.allow and not self.tls:
            raise InputError("--allow: names certificates, which only --tls asks for")


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine reach this address."""
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError) as error:
        raise InputError(f"--host {host}: not an address of this machine ({error})") from None
    return all(ipaddress.ip_address(one.partition("%")[0]).is_loopback for one in found)


def listening_socket(settings: Settings) -> socket.socket:
    """Listening at the address of the settings; port 0 takes any that is free."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    found = socket.socket(family)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((settings.host, settings.port))
        found.listen(BACKLOG)  # a client that comes before the server has started waits
    except (OSError, OverflowError) as error:
        found.close()
        raise InputError(
            f"--host {settings.host} --port {settings.port}: cannot listen there ({error}); if the "
            "port is in use, choose another one"
        ) from None
    return found


def token_path(party: PartyFile) -> Path:
    """Where the token of a party is, if no other file is named."""
    return party.folder / TOKEN
