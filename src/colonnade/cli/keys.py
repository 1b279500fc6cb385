"""The command `colonnade keys`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from colonnade.common.text import paragraphs
from colonnade.errors import InputError

if TYPE_CHECKING:
    from colonnade.federation.agreement.federation import Federation

keys_app = typer.Typer(
    no_args_is_help=True,
    help=paragraphs("""Make the certificates by which the parties of a federation know each other.

    One authority signs one certificate per party. The holder of the authority's key decides which
    parties take part, so one organisation keeps it and shows it to no other.

    The short way, if one organisation may make everybody's keys: [bold]colonnade keys make
    federation.toml[/bold], then hand each party its files.

    The careful way, in which no private key ever travels: each party runs [bold]colonnade keys
    request[/bold] and sends the .csr file, the authority runs [bold]colonnade keys sign[/bold] and
    sends back the .pem file and authority.pem."""),
)

Folder = Annotated[
    Path,
    typer.Option(
        "--out", "-o", help="Folder of the keys; what is there is never overwritten.", metavar="DIR"
    ),
]
Days = Annotated[int, typer.Option("--days", help="How long the certificate is valid.")]
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="HOST",
        help="A name or address at which others connect to the party; may be given several times. "
        "Default: localhost and 127.0.0.1.",
    ),
]
Party = Annotated[
    str, typer.Argument(help="The party's name in the federation file.", metavar="NAME")
]
KEYS = Path("keys")


def _command(function: Callable[..., None]) -> Callable[..., None]:
    return keys_app.command(help=paragraphs(function.__doc__))(function)


@_command
def make(
    file: Annotated[Path, typer.Argument(help="The federation file.", metavar="FEDERATION.toml")],
    out: Folder = KEYS,
    days: Days = 365,
) -> None:
    """Make everything that is missing: the authority, and a key and certificate for every party.

    The hosts in the certificates are those of the endpoints in the federation file. Run it again
    after a party was added: what is there stays as it is. To renew a certificate, move the party's
    two files away first.
    """
    from colonnade.common.file_kinds import FEDERATION, check_kind

    check_kind(file, FEDERATION)
    from colonnade.common.party_names import AUTHORITY
    from colonnade.federation.agreement.federation_file import read_federation
    from colonnade.federation.keys.certificates import make_authority, make_certificate
    from colonnade.federation.keys.identity import Identity

    federation = read_federation(file)
    made: list[str] = []
    if not Identity.of(out, AUTHORITY).certificate.exists():
        make_authority(out, federation.name)
        made.append(AUTHORITY)
    for party in federation.members:
        hosts = _hosts(federation, party)
        if Identity.of(out, party).certificate.exists():
            _check_kept(out, party, hosts)
        else:
            make_certificate(out, party, hosts=hosts, days=days)
            made.append(party)
    _say(f"Made in {out}: {', '.join(made)}." if made else f"Nothing was missing in {out}.")
    _hand_out(out, federation.members)


@_command
def authority(
    name: Annotated[
        str, typer.Argument(help="For people: which federation this is.", metavar="NAME")
    ],
    out: Folder = KEYS,
    days: Days = 3650,
) -> None:
    """Make an authority: authority.pem, which every party gets, and authority.key, which stays."""
    from colonnade.federation.keys.certificates import make_authority

    certificate = make_authority(out, name, days=days)
    _say(f"{certificate}: give it to every party.")
    _say(f"{certificate.with_suffix('.key')}: private. Whoever has it decides who takes part.")


@_command
def party(name: Party, host: Hosts = None, out: Folder = KEYS, days: Days = 365) -> None:
    """Make a party's key and certificate here, signed by the authority in the folder.

    Its key then has to travel to the party; where that is not wanted, see [bold]colonnade keys
    request[/bold].
    """
    from colonnade.federation.keys.certificates import LOCAL, make_certificate

    make_certificate(out, name, hosts=host or LOCAL, days=days)
    _hand_out(out, [name])


@_command
def request(name: Party, host: Hosts = None, out: Folder = KEYS) -> None:
    """At a party: make a key that stays here, and a request for a certificate, NAME.csr.

    Send the request to the holder of the authority's key.
    """
    from colonnade.federation.keys.certificates import LOCAL, make_request

    made = make_request(out, name, host or LOCAL)
    _say(f"{made}: send it to the authority; it is not secret.")
    _say(f"You get back {name}.pem and authority.pem: put both into {out}.")
    _say(f"{made.with_suffix('.key')}: private. It stays here.")


@_command
def sign(
    file: Annotated[Path, typer.Argument(help="What the party sent.", metavar="REQUEST.csr")],
    party: Annotated[
        str | None,
        typer.Option(
            "--party",
            metavar="NAME",
            help="Who sent it, if you know: a request that asks for another name is refused.",
        ),
    ] = None,
    out: Folder = KEYS,
    days: Days = 365,
) -> None:
    """At the authority: sign a party's request. Make sure first that it came from that party."""
    from colonnade.federation.keys.certificates import describe, sign_request

    made = sign_request(out, file, days=days, party=party)
    about = describe(made)
    _say(f"Signed: {about.party}, at {', '.join(about.hosts)}, until {about.valid_to:%Y-%m-%d}.")
    _say(f"Send back {made} and {out / 'authority.pem'}; neither is secret.")


@_command
def show(
    files: Annotated[
        list[Path], typer.Argument(help="Certificates, or folders of them.", metavar="FILE…")
    ],
) -> None:
    """Say what certificates hold: whose they are, for which hosts, until when.

    Two people can compare fingerprints by telephone to know that they have the same authority.
    """
    from colonnade.federation.keys.certificates import describe

    table = Table(box=box.SIMPLE_HEAD)
    for column in ("party", "hosts", "valid until", "fingerprint (SHA-256)"):
        table.add_column(column, overflow="fold")
    for path in _certificates(files):
        about = describe(path)
        who = f"{about.party} (authority)" if about.is_authority else about.party
        until = f"{about.valid_to:%Y-%m-%d %H:%M} UTC"
        cells = (who, ", ".join(about.hosts), until, about.fingerprint)
        table.add_row(*map(Text, cells))
    Console().print(table)


def _hosts(federation: Federation, party: str) -> tuple[str, ...]:
    from colonnade.federation.agreement.specs import address
    from colonnade.federation.keys.certificates import LOCAL

    endpoint = federation.party(party).endpoint
    return LOCAL if endpoint is None else (address(endpoint, "endpoint")[0],)


def _check_kept(folder: Path, party: str, hosts: tuple[str, ...]) -> None:
    """A certificate from before the endpoint was changed would be refused by the others."""
    from colonnade.federation.agreement.party_file import covers
    from colonnade.federation.keys.certificates import describe
    from colonnade.federation.keys.identity import Identity

    path = Identity.of(folder, party).certificate
    known = describe(path).hosts
    if not all(covers(known, host) for host in hosts):
        raise InputError(
            f"{path}: is for {', '.join(known) or 'no host'}, but the federation file has "
            f"{party!r} at {', '.join(hosts)}. To make a new one, move {party}.pem and {party}.key "
            "away first."
        )


def _hand_out(folder: Path, parties: Iterable[str]) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("party", no_wrap=True)
    table.add_column("gets")
    table.add_column("and, in private")
    for name in parties:
        key = f"{name}.key" if (folder / f"{name}.key").exists() else "(it has its key)"
        table.add_row(name, f"authority.pem, {name}.pem", key)
    Console().print(table)
    _say(f"{folder / 'authority.key'} goes to nobody: whoever has it decides who takes part.")


def _certificates(files: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in files:
        inside = sorted(path.glob("*.pem")) if path.is_dir() else [path]
        if not inside:
            raise InputError(f"{path}: holds no certificate (.pem).")
        found += inside
    return found


def _say(text: str) -> None:
    typer.echo(text)
