"""The order in which stages go to workers, and how many are given to them at once."""

from __future__ import annotations

from concurrent.futures import Executor, Future

import pytest

from residuum.studies import Study, plan, run_all
from residuum.studies.planning import SeedPlan
from residuum.studies.runner import LENGTHS, longest_path_first
from residuum.studies.store import Store


def test_what_the_most_work_waits_for_comes_first(stage):
    original, control = stage("train", "original"), stage("train", "control")
    row = stage("unlearn", "row", original=original)
    audit = stage("audit", "all", original=original, control=control, row=row)
    quick = stage("evaluate", "row", model=row)
    stages = [quick, control, original, row, audit, quick]
    seconds = {original.key: 3, control.key: 4, row.key: 2, audit.key: 5, quick.key: 1}
    ordered = longest_path_first(stages[1:], seconds)
    assert ordered == [original, control, row, audit, quick]  # paths of 10, 9, 7, 5 and 1 seconds


def test_audits_and_trainings_are_long_and_equal_paths_stay_in_order():
    study = Study.create("tiny", seeds=[3, 1, 2])
    stages = [each for seed in plan(study) for each in seed.stages]
    lengths = {stage.key: LENGTHS.get(stage.kind, 1.0) for stage in stages}
    titles = [stage.title for stage in longest_path_first(stages, lengths)]
    assert titles[:4] == [f"train original (seed {seed})" for seed in (3, 1, 2)] + ["train retrain (seed 3)"]
    assert titles.index("audit gaussian (seed 2)") < titles.index("evaluate gd (seed 3)")


class Watched(Executor):
    """An executor that runs nothing until it is asked to, and counts what it holds."""

    def __init__(self, workers=None):
        if workers:
            self.workers = workers
        self.most = self.now = 0

    def submit(self, function, /, *arguments):
        self.now += 1
        self.most = max(self.most, self.now)
        return Delayed(self, function, arguments)


class Delayed(Future):
    """A future that is done when somebody waits for it."""

    def __init__(self, executor, function, arguments):
        super().__init__()
        self.executor, self.work = executor, (function, arguments)

    def do(self):
        function, arguments = self.work
        self.executor.now -= 1
        self.set_result(function(*arguments))


@pytest.mark.parametrize(("workers", "most"), [(1, {2}), (2, {3}), (None, range(6, 23))])
def test_a_pool_gets_one_stage_more_than_it_has_workers_and_a_cluster_all(workers, most, tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(Store, "compute", lambda self, each: done.append(each))
    monkeypatch.setattr("residuum.studies.runner._gather", lambda seed, store: [])

    def wait_for_the_first(futures, timeout, return_when):
        first = next(iter(futures))
        first.do()
        return type("Waited", (), {"done": {first}})

    monkeypatch.setattr("residuum.studies.runner.wait", wait_for_the_first)
    executor = Watched(workers)
    run_all([Study.create("tiny")], store=tmp_path, executor=executor)[0]
    assert len(done) == 22
    places = {each.key: place for place, each in enumerate(done)}
    assert all(places[parent.key] < places[each.key] for each in done for parent in each.parents.values())
    assert executor.most in most  # six trainings wait for nothing


def test_a_plan_that_can_never_be_finished_is_an_error(stage, tmp_path):
    orphan = stage("evaluate", "row", model=stage("train", "original"))
    plans = [[SeedPlan(1, {}, {"row": orphan}, {})]]
    with pytest.raises(KeyError, match=orphan.parents["model"].key):
        run_all([Study.create("tiny")], store=tmp_path, executor=Watched(), plans=plans)
