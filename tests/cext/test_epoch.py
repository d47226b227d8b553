"""A retired object is not freed while a thread that could have seen it is inside an epoch."""

import threading

from barnabas.cext.memory.epoch import Epochs, EpochStress


def run_readers(*, readers: int, replacements: int, protected: bool = True):
    epochs = Epochs()
    stress = EpochStress(epochs)
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(stress.read(protected)))
        for _ in range(readers)
    ]
    for thread in threads:
        thread.start()
    stress.replace(replacements)
    stress.stop()
    for thread in threads:
        thread.join()
    return epochs, results


def test_readers_inside_an_epoch_never_see_a_freed_object():
    epochs, results = run_readers(readers=3, replacements=40_000)
    assert sum(reads for reads, _ in results) > 0
    assert [wrong for _, wrong in results] == [0, 0, 0]
    assert epochs.collect() == 0


def test_what_is_retired_waits_for_a_reader_and_no_longer():
    epochs, _ = run_readers(readers=0, replacements=1000)
    assert epochs.collect() == 0


def test_many_more_threads_than_cores():
    epochs, results = run_readers(readers=40, replacements=2000)
    assert len(results) == 40
    assert all(wrong == 0 for _, wrong in results)
    assert epochs.collect() == 0
