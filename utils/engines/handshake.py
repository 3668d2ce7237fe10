"""How an agent and its launcher show each other that they hold the same key, without sending it."""

import hmac
import json
import os
import secrets
from dataclasses import asdict, dataclass

from ..errors import RunError
from ..processes.connection import Connection

AGENT_VARIABLE = "DISTLAB_AGENT"
HANDSHAKE_SECONDS = 10.0


@dataclass(frozen=True)
class Call:
    """Where an agent calls, and the key that it shares with its launcher.

    It travels in the environment of the processes that an engine starts.
    """

    address: str
    key: str

    def to_text(self) -> str:
        return json.dumps(asdict(self))


def take_call() -> Call:
    """Return the call of this process, and take it out of what its children inherit."""
    return Call(**json.loads(os.environ.pop(AGENT_VARIABLE)))


def make_key() -> str:
    return secrets.token_hex(32)


def _prove(key: str, role: str, *nonces: str) -> str:
    words = "|".join((role, *nonces)).encode()
    return hmac.digest(bytes.fromhex(key), words, "sha256").hex()


def greet_launcher(connection: Connection, key: str, about: dict[str, object]) -> None:
    """Be the agent: answer the launcher's nonce, say who this is, and check its answer.

    Raises RunError where the other side has another key.
    """
    theirs = str(connection.receive(HANDSHAKE_SECONDS).content["nonce"])
    ours = secrets.token_hex(16)
    proof = _prove(key, "agent", theirs, ours)
    connection.send({"nonce": ours, "proof": proof, **about})
    answer = connection.receive(HANDSHAKE_SECONDS).content
    if not hmac.compare_digest(str(answer.get("proof")), _prove(key, "launcher", theirs, ours)):
        raise RunError(f"{connection.peer} does not know the key of this run")


def greet_agent(connection: Connection, key: str) -> dict[str, object]:
    """Be the launcher: return what the agent says of itself. Raises RunError for a wrong key."""
    ours = secrets.token_hex(16)
    connection.send({"nonce": ours})
    about = connection.receive(HANDSHAKE_SECONDS).content
    theirs, proof = (str(about.pop(name, "")) for name in ("nonce", "proof"))
    if not hmac.compare_digest(proof, _prove(key, "agent", ours, theirs)):
        raise RunError(f"{connection.peer} does not know the key of this run")
    connection.send({"proof": _prove(key, "launcher", ours, theirs)})
    return about
