"""One message to several nodes and their checked answers; a node that fails in any way is named with the reason."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedentropy_core.flower.protocol import Malformed, content_bytes

POLL_SECONDS = 0.2
EXPIRY_SLACK = 10.0  # a message outlives the wait for it, so that silence is told from a lost message

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Exchange(Generic[Answer]):
    """Keys are those of the messages sent. Every one of them is in `answers` or in `failed`."""

    answers: dict[int, Answer]
    failed: dict[int, str]
    bytes_out: int
    bytes_in: int


@dataclass(frozen=True)
class Letter:
    """A message to be sent: to which node, and what."""

    node: int
    content: RecordDict


def exchange(
    grid: Grid,
    kind: str,
    letters: dict[int, Letter],
    read: Callable[[RecordDict], Answer],
    timeout: float,
    round: int = 0,
) -> Exchange[Answer]:
    """Sends every letter and waits up to `timeout` seconds; `read` turns a reply into an answer or raises Malformed."""
    failed: dict[int, str] = {}
    waiting: dict[str, int] = {}
    # One at a time: SuperLink limits the size of a request, and a lost message can be told from the others.
    for key, letter in letters.items():
        message = Message(letter.content, letter.node, kind, ttl=timeout + EXPIRY_SLACK, group_id=str(round))
        ids = [message_id for message_id in grid.push_messages([message]) if message_id]
        if ids:
            waiting[ids[0]] = key
        else:
            failed[key] = "cannot be reached"
    answers: dict[int, Answer] = {}
    bytes_in = 0
    for key, reply in _replies(grid, waiting, time.monotonic() + timeout):
        if not reply.has_content():
            failed[key] = _reason(reply)
            continue
        bytes_in += content_bytes(reply.content)
        try:
            answers[key] = read(reply.content)
        except Malformed as problem:
            failed[key] = str(problem)
    failed |= {key: f"no answer within {timeout:g} s" for key in letters if key not in answers and key not in failed}
    in_order = {key: answers[key] for key in letters if key in answers}
    return Exchange(in_order, failed, sum(content_bytes(letter.content) for letter in letters.values()), bytes_in)


def _replies(grid: Grid, waiting: dict[str, int], deadline: float):
    """(key, reply) as they come, until all are there or the deadline is past."""
    while waiting:
        for reply in grid.pull_messages(list(waiting)):
            key = waiting.pop(reply.metadata.reply_to_message_id, None)
            if key is not None:
                yield key, reply
        if not waiting or time.monotonic() > deadline:
            return
        time.sleep(POLL_SECONDS)


def _reason(reply: Message) -> str:
    """An error in a line: the device's traceback is in its own log."""
    text = " ".join((reply.error.reason or "").split())
    return f"error {reply.error.code}: {text[-300:]}"
