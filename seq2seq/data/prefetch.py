"""Batches made ahead of their use, in one thread, so that training never waits for data."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from numpy.typing import NDArray

from seq2seq.data.batching import Batch, collate
from seq2seq.data.store import IdStore

T = TypeVar("T")
BATCHES_AHEAD = 4


def load_batches(
    source: IdStore, target: IdStore, plan: Iterable[NDArray], device: torch.device
) -> Iterator[Batch]:
    """The batches of a plan, read, padded and moved while earlier ones are used."""
    made = (collate(source.read(rows), target.read(rows)).to(device) for rows in plan)
    return prefetch(made, BATCHES_AHEAD)


def prefetch(items: Iterator[T], ahead: int) -> Iterator[T]:
    """The same items in the same order, up to ``ahead`` of them made before they are asked for.

    An error in making an item is raised where that item is asked for. The thread ends with the
    iterator: exhausted, closed or forgotten, it waits for the item that is being made at most.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
    try:
        waiting = deque(thread.submit(items.__next__) for _ in range(ahead))
        while True:
            item = waiting.popleft().result()
            waiting.append(thread.submit(items.__next__))
            yield item
    except StopIteration:
        return  # the end of the items is the end of these
    finally:
        thread.shutdown(cancel_futures=True)
