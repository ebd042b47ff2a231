"""What a training shows: one bar for all runs, and a line for each that ends or is left."""

from collections.abc import Sequence
from types import TracebackType

from tqdm.auto import tqdm

from fedentropy_core.runs.journal import title
from fedentropy_core.runs.listing import read_record
from fedentropy_core.runs.record import RunRecord
from fedentropy_core.runs.training import Begun, Ended, Event, Left, Noted, Order, Paused, Played


class Display:
    """A bar over the rounds of all orders; those of a checkpoint count, but not for the time left."""

    def __init__(self, orders: Sequence[Order], progress: bool = True, notices: bool = True):
        self.notices = notices
        self.under_way: dict[Order, int] = {}  # its rounds
        total = sum(order.config.rounds for order in orders)
        self.bar = tqdm(total=total, unit="round", smoothing=0.02, disable=not progress)

    def __enter__(self) -> "Display":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.bar.close()

    def show(self, event: Event) -> None:
        order = event.order
        if isinstance(event, Begun):
            self.under_way[order] = event.rounds
            self._skip(event.rounds)
            self._describe()
        elif isinstance(event, Played):
            played, self.under_way[order] = event.rounds - self.under_way[order], event.rounds
            self.bar.set_postfix_str(self._now(event), refresh=False)
            self.bar.update(played)
        elif isinstance(event, Noted):
            self.write(f"{title(order.config)}: {event.text}")
        else:
            self._end(event)

    def write(self, text: str) -> None:
        """A line above the bar."""
        if self.notices:
            self.bar.write(text)

    def _end(self, event: Ended | Paused | Left) -> None:
        played = self.under_way.pop(event.order, 0)
        if not isinstance(event, Paused):
            self.bar.total -= event.order.config.rounds - played
        if isinstance(event, Ended):
            record = read_record(event.order.files.csv)
            if record is not None:
                self.write(outcome(record))
        elif isinstance(event, Left):
            self.write(f"skipped {title(event.order.config)}: {event.why}")
        self._describe()

    def _skip(self, rounds: int) -> None:
        if not self.bar.disable:
            self.bar.initial += rounds
            self.bar.n += rounds
            self.bar.last_print_n += rounds

    def _describe(self) -> None:
        if not self.bar.disable and self.under_way:
            one, *more = self.under_way
            self.bar.set_description_str(f"{len(more) + 1} runs" if more else title(one.config))

    def _now(self, event: Played) -> str:
        which = [f"{title(event.order.config)} round {event.rounds}"] if len(self.under_way) > 1 else []
        row = event.row
        how = [f"accuracy {row.accuracy:.2%}", f"kept {len(row.kept)}/{len(row.chosen)}"] if row else []
        return ", ".join(which + how)


def outcome(record: RunRecord) -> str:
    """A finished run in a line."""
    played = [] if record.rounds.empty else [f"last ten {record.final_accuracy:.2%}, best {record.best_accuracy:.2%}"]
    end = [f"diverged in round {record.diverged}"] if record.diverged else []
    return f"{record.path}: {', '.join(played + end)}"
