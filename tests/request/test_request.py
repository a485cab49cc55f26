"""A request on the user's own network: splits are hers, models stay as they are, the run is a run like any other."""

import copy
import json
import threading
import zipfile
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from tests.request.conftest import MEAN, STD, HerNet, her_training
from torch import nn
from torch.utils.data import Subset, TensorDataset

from residuum import InputError, Recipe, Request, Run, wrap
from residuum.auditing import Counts
from residuum.auditing.probes import Evidence, RecoveryRadius
from residuum.cli import run_command
from residuum.core.errors import ResiduumWarning
from residuum.core.roles import trained_roles
from residuum.core.seeds import child_seed
from residuum.metrics import accuracy
from residuum.pack import pack
from residuum.perturbations import block_generator
from residuum.reporting import report, to_frame
from residuum.reporting.wording import not_proved, verdict_sentence
from residuum.request import AuditOptions, Reading
from residuum.request.study import References, request_study
from residuum.studies import plan
from residuum.studies.execution import Resources
from residuum.studies.maintenance import artifacts

OPTIONS = AuditOptions(taus=[0, 0.05, 0.1])
QUICK = {"draws": 30, "options": OPTIONS}
NO_PROBES = {"draws": 30, "options": replace(OPTIONS, measures=[])}
SURROGATES = ("retrain", "control", "control_2")


def her_model(path):
    net = HerNet()
    net.load_state_dict(load_file(path))
    return wrap(net, mean=MEAN, std=STD)


@pytest.fixture(scope="module")
def request_(case):
    return case.request()


@pytest.fixture(scope="module")
def proof(case, request_, tmp_path_factory):
    done = request_.unlearn(case.model, "gd:epochs=2", seed=1)
    return request_.audit(case.model, done, controls=3, out=tmp_path_factory.mktemp("run"), **QUICK)


def test_nothing_is_cut_out_of_the_training_data(case, request_):
    splits = request_.splits
    assert splits.train.ids == case.train.ids
    assert set(splits.forget.ids) == set(case.ids)
    assert len(splits.retain) == 276
    assert len(splits.test) == 600
    assert not len(splits.validation)
    assert not set(splits.test.ids) & set(splits.train.ids)


def test_the_untouched_original_is_found_and_never_called_over_forgotten(proof):
    assert proof.verdicts["original"].verdict.label == "residual knowledge found"
    assert proof.rows["original"].role == "original"
    assert list(proof.rows) == ["original", "retrain", "control", "control_2", "control_3", "gd:epochs=2"]


def test_the_folder_is_that_of_any_run(proof, tmp_path):
    again = Run.load(proof.folder)
    assert {label: v.verdict for label, v in again.verdicts.items()} == {
        label: v.verdict for label, v in proof.verdicts.items()
    }
    files = report(again, out=tmp_path)
    page = files[0].read_text(encoding="utf-8")
    assert "HerNet" in page
    assert "24 training samples, listed by id" in page
    assert len(to_frame(again)) == 6
    record = json.loads((proof.folder / "results.json").read_text(encoding="utf-8"))
    assert record["scenario"]["sizes"] == {"retain": 276, "forget": 24, "validation": 0, "test": 600}


def test_its_pack_verifies_and_names_no_sample(case, proof, tmp_path):
    train = case.request().source.samples
    pack(proof, tmp_path / "evidence.zip")
    assert run_command(["verify", str(tmp_path / "evidence.zip"), "--models", str(proof.folder)]) == 0
    with zipfile.ZipFile(tmp_path / "evidence.zip") as packed:
        whole = b"".join(packed.read(name) for name in packed.namelist())
    assert b"HerNet" in whole
    assert train[0][0].numpy().tobytes() not in whole
    assert str(proof.folder).encode() not in whole


def test_counts_are_those_of_an_independent_loop(case, proof):
    """Thirty lines that share nothing with the engine but the noise stream's key."""
    counts = Counts.load(proof.folder / "counts" / "1" / "original" / "gaussian.npz")
    nets = {}
    for label in ("original", "retrain"):
        nets[label] = HerNet().eval()
        nets[label].load_state_dict(load_file(proof.folder / "models" / "1" / f"{label}.safetensors"))
        nets[label].double()
    seed = child_seed(1, "audit")
    for row, name in enumerate(counts.ids):
        x, y = case.train[case.train.ids.index(name)]
        for column, tau in enumerate((0.0, 0.05, 0.1)):
            blocks = [
                block_generator(seed, name, block).standard_normal((25, 64), dtype="float32") for block in range(2)
            ]
            noise = torch.cat([torch.from_numpy(block) for block in blocks])[: 30 if tau else 1].view(-1, 1, 8, 8)
            moved = (x + tau * noise if tau else x[None]).clamp(0, 1).double()
            right = {label: nets[label]((moved - MEAN) / STD).argmax(1) == y for label in nets}
            assert counts.method_right[row, column] == right["original"].sum()
            assert counts.reference_right[row, column] == right["retrain"].sum()
            assert counts.both_right[row, column] == (right["original"] & right["retrain"]).sum()


def test_unlearning_leaves_the_model_and_saves_her_own_keys(case, request_, tmp_path):
    model = case.model
    before = copy.deepcopy(model.state_dict())
    done = request_.unlearn(model, "gd:epochs=1", seed=1)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    done.save(tmp_path / "new.safetensors")
    done.save(tmp_path / "new.pt")
    stored = load_file(tmp_path / "new.safetensors")
    assert list(HerNet().state_dict()) == sorted(stored, key=list(before).index)
    again = wrap(HerNet(), tmp_path / "new.pt", mean=MEAN, std=STD)
    x, _ = case.train.batch(torch.arange(9))
    assert torch.equal(again(x), done(x))
    with pytest.raises(InputError, match=r"\.safetensors, \.pt"):
        done.save(tmp_path / "new.txt")


def trained_further(samples, seed, model=None):
    """Her training, which also takes a network to start from; it normalizes its inputs itself."""
    torch.manual_seed(seed)
    net = model or HerNet()
    assert net.training
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for _ in range(40):
        for rows in torch.randperm(len(samples)).split(64):
            x, y = samples.batch(rows)
            optimizer.zero_grad()
            nn.functional.cross_entropy(net((x - MEAN) / STD), y).backward()
            optimizer.step()
    return net.eval()


def test_a_soft_reset_of_a_model_trained_by_adamw_follows_her_own_training_function(case):
    request, seen = case.request(), []
    with pytest.raises(InputError, match=r"give recipe=, or a retrain= function that takes model= to start from"):
        request.unlearn(case.model, "soft_reset")
    with pytest.raises(InputError, match=r"teacher trains as the model was trained, .*: give recipe=$"):
        case.request(retrain=trained_further).unlearn(case.model, "teacher")

    def retrain(samples, seed, model=None):
        seen.append((samples, copy.deepcopy(model)))
        return trained_further(samples, seed, model)

    request = case.request(retrain=retrain)
    done = request.unlearn(case.model, "soft_reset", seed=1)
    ((samples, start),) = seen
    assert set(samples.ids) == set(case.train.ids) - set(case.ids)
    weights, old = start.fc.weight.detach(), case.net.fc.weight.detach()
    turned = torch.cosine_similarity(weights.flatten(), old.flatten(), 0).item()
    assert done.notes["cosines"]["fc"] == pytest.approx(turned, abs=1e-5)
    assert not torch.equal(weights, old)
    assert not hasattr(start, "adapter")
    assert accuracy(done.model, case.held_out) > accuracy(case.model, case.held_out) - 3
    again = request.unlearn(case.model, "soft_reset", seed=1).model.state_dict()
    assert all(torch.equal(value, again[key]) for key, value in done.model.state_dict().items())


def test_unlearning_says_accuracy_before_and_after(case, request_):
    done = request_.unlearn(case.model, "gd:epochs=1", seed=1)
    parts = {"retain": request_.splits.retain, "held_out": request_.splits.test}
    assert done.before == {name: accuracy(case.model, part) for name, part in parts.items()}
    assert done.after == {name: accuracy(done.model, part) for name, part in parts.items()}
    assert f"retain accuracy {done.before['retain']:.1f} % before, {done.after['retain']:.1f} % after" in str(done)
    assert done.warnings == ()
    alone = case.request(held_out=None).unlearn(case.model, "gd:epochs=1", seed=1)
    assert list(alone.before) == list(alone.after) == ["retain"]


@pytest.mark.parametrize(
    ("row", "advice"),
    [
        ("soft_reset:keep=0.1:epochs=1", "try soft_reset:epochs=2$"),
        ("ga:lr=1:epochs=2", "try gentler settings .*, or soft_reset"),
    ],
)
def test_a_loss_of_accuracy_is_a_warning_that_says_what_to_try(case, row, advice):
    request = case.request(recipe=Recipe(epochs=20, lr=1e-3, optimizer="adamw", batch_size=64))
    with pytest.warns(
        ResiduumWarning, match=rf"lost \d+\.\d points of retain accuracy .* held-out .*; {advice}"
    ) as heard:
        done = request.unlearn(case.model, row, seed=1)
    assert heard[-1].filename == __file__
    assert done.warnings == tuple(str(warning.message) for warning in heard)
    assert done.before["retain"] - done.after["retain"] > 3


def test_a_loss_on_held_out_samples_alone_is_left_to_the_audit(case, monkeypatch):
    monkeypatch.setattr("residuum.request.request.lost_accuracy", lambda *args: {"held_out": 2.5})
    with pytest.warns(ResiduumWarning, match=r"gd lost 2\.5 points of held-out accuracy"):
        done = case.request(recipe=Recipe(epochs=1)).unlearn(case.model, "gd:epochs=1", seed=1)
    assert done.warnings == ()


@pytest.mark.filterwarnings("ignore:teacher")
def test_warnings_of_a_method_are_shown_in_the_words_of_a_request(case):
    request = case.request(validation=case.held_out)
    row = "teacher:lr=0.05:momentum=0.9:weight_decay=0:batch_size=32:optimizer=sgd:epochs=40"
    with pytest.warns(ResiduumWarning, match=r"GD's values are used; give its recipe: recipe=$"):
        request.unlearn(case.model, row, seed=1)


def test_a_forgotten_class_is_no_loss_of_held_out_accuracy(case):
    threes = [str(k) for k in range(300) if case.train.y[k] == 3]
    recipe = Recipe(epochs=40, lr=3e-3, optimizer="adamw", batch_size=64)
    request = Request(case.train, forget=threes, held_out=case.held_out, recipe=recipe)
    done = request.unlearn(case.model, "soft_reset", seed=1)
    others = case.held_out.subset(torch.nonzero(case.held_out.y != 3).flatten().tolist())
    assert done.after["held_out"] == accuracy(done.model, others)
    assert accuracy(done.model, case.held_out) < done.before["held_out"] - 3


def test_earlier_requests_are_forgotten_as_well_and_not_judged(case, tmp_path):
    first, second = case.ids[:12], case.ids[12:]
    recipe = Recipe(epochs=40, lr=3e-3, optimizer="adamw", batch_size=64)
    seen = []

    def retrain(samples, seed):
        seen.append(set(samples.ids))
        return her_training(samples, seed)

    request = case.request(retrain=retrain, recipe=recipe, forget=second, earlier=first)
    splits = request.splits
    assert set(splits.forget.ids) == set(second)
    assert set(splits.retain.ids) == set(case.train.ids) - set(case.ids)
    assert set(splits.train.ids) == set(case.train.ids) - set(first)
    assert repr(request).startswith("Request(forget 12 of 300 training samples, 12 forgotten earlier,")
    once = case.request(recipe=recipe).unlearn(case.model, "neggrad:epochs=1", seed=1)
    both = request.unlearn(case.model, "neggrad:epochs=1", seed=1)
    assert all(torch.equal(value, both.model.state_dict()[key]) for key, value in once.model.state_dict().items())
    run = request.audit(case.model, both, controls=1, out=tmp_path, **QUICK)
    assert seen == [set(splits.retain.ids)] * 2
    assert set(Counts.load(tmp_path / "counts" / "1" / "original" / "gaussian.npz").ids) == set(second)
    assert run.record.scenario.sizes == {"retain": 276, "forget": 12, "validation": 0, "test": 600}
    assert any(note.startswith("12 samples of earlier requests") for note in run.record.notes)


def test_her_own_data_set_without_earlier_samples_reaches_her_training_function(case):
    x, y = case.train.batch(torch.arange(300))
    sizes = []

    def retrain(samples, seed):
        sizes.append(len(samples))
        return HerNet()

    Request(TensorDataset(x, y), forget=case.ids[12:], earlier=case.ids[:12], retrain=retrain).retrained(case.model, 0)
    assert sizes == [276]


@pytest.mark.parametrize("suffix", [None, ".safetensors", ".pt"])
def test_samples_that_were_unlearned_are_not_retained_again_in_silence(case, suffix, tmp_path):
    first, second = case.ids[:12], case.ids[12:]
    done = case.request(forget=first).unlearn(case.model, "gd:epochs=1", seed=1)
    model = done.model
    if suffix:
        path = done.save(tmp_path / f"new{suffix}")
        model = wrap(HerNet(), path, mean=MEAN, std=STD)
    again = "the model has unlearned 12 samples that this request retains"
    with pytest.warns(ResiduumWarning, match=again):
        wrong = case.request(forget=second).unlearn(model, "gd:epochs=1", seed=1)
    assert again in wrong.warnings[0]
    right = case.request(forget=second, earlier=first).unlearn(model, "gd:epochs=1", seed=1)
    assert right.warnings == ()
    with pytest.warns(ResiduumWarning, match="unlearned 24 samples"):
        Request(case.train, forget=["0"], held_out=case.held_out).unlearn(right.model, "gd:epochs=1", seed=1)
    if suffix == ".pt":
        with pytest.warns(ResiduumWarning, match=again):
            run = case.request(forget=second).audit(model, wrong, controls=1, out=tmp_path / "run", **QUICK)
        assert any(again in text for text in run.record.warnings)


def test_a_note_that_is_none_is_refused(case, tmp_path):
    path = case.request().unlearn(case.model, "gd:epochs=1", seed=1).save(tmp_path / "new.pt")
    for text in ("[]", "{", '{"schema": "residuum.unlearned/1", "salt": "", "hashes": []}'):
        (tmp_path / "new.pt.unlearned.json").write_text(text)
        with pytest.raises(InputError, match=r"new\.pt\.unlearned\.json: expected the note of an unlearning"):
            wrap(HerNet(), path)


def test_earlier_ids_are_checked(case):
    with pytest.raises(InputError, match=r"^earlier: 'nobody' is not among the 300 training samples"):
        case.request(earlier=["nobody"])
    with pytest.raises(InputError, match=r"^earlier: '\d+' is among the ids of this request as well"):
        case.request(earlier=case.ids[:1])
    with pytest.raises(InputError, match="this and earlier requests ask for all 2 training samples"):
        Request((torch.zeros(2, 3), [0, 1]), forget=["0"], earlier=["1"])


@pytest.mark.parametrize(("row", "setting"), [("lr=0.1", "lr"), ("epochs=3", "epochs")])
def test_settings_that_her_training_function_cannot_take_are_refused(case, row, setting):
    with pytest.raises(InputError, match=f"soft_reset: .*{setting}.* recipe="):
        case.request(retrain=trained_further).unlearn(case.model, f"soft_reset:{row}")


def test_a_soft_reset_by_recipe_keeps_a_model_trained_by_adamw_alive(case):
    recipe = Recipe(epochs=40, lr=3e-3, optimizer="adamw", batch_size=64)
    done = case.request(recipe=recipe).unlearn(case.model, "soft_reset", seed=1)
    assert done.passes == 12 * 276
    assert accuracy(done.model, case.held_out) > accuracy(case.model, case.held_out) - 3


def test_the_same_seed_gives_the_same_weights_even_with_dropout(case, request_):
    one, two = (request_.unlearn(case.model, "gd:epochs=1", seed=5).model.state_dict() for _ in range(2))
    other = request_.unlearn(case.model, "gd:epochs=1", seed=6).model.state_dict()
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert not all(torch.equal(one[key], other[key]) for key in one)


def test_models_made_elsewhere_are_audited_without_training(case, tmp_path):
    request = case.request(retrain=None)
    retain = request.splits.retain
    reference, first, second = (her_training(retain, seed) for seed in (1, 2, 3))
    run = request.audit(
        case.model, copy.deepcopy(case.net), reference=reference, controls=[first, second], out=tmp_path, **QUICK
    )
    assert list(run.rows) == ["original", "retrain", "control", "control_2", "unlearned"]
    original, same = (run.rows[label].per_seed["1"].audits["gaussian"] for label in ("original", "unlearned"))
    assert original.residual_knowledge == same.residual_knowledge


def test_controls_are_made_beside_a_reference_of_hers_where_that_is_possible(case, tmp_path):
    reference = her_training(case.request().splits.retain, 1)
    run = case.request().audit(case.model, case.net, reference=reference, controls=1, out=tmp_path / "made", **QUICK)
    assert list(run.rows) == ["original", "retrain", "control", "unlearned"]
    assert run.rows["retrain"].per_seed["1"].seconds == 0 < run.rows["control"].per_seed["1"].seconds
    alone = case.request(retrain=None)
    run = alone.audit(case.model, case.net, reference=reference, out=tmp_path / "alone", **QUICK)
    assert list(run.rows) == ["original", "retrain", "unlearned"]
    assert run.verdicts["unlearned"].verdict.label == "inconclusive"
    assert report(run)


def test_a_recipe_re_trains_where_there_is_no_function(case, tmp_path):
    recipe = Recipe(epochs=20, lr=3e-3, optimizer="adamw", batch_size=64)
    run = case.request(retrain=None, recipe=recipe).audit(case.model, case.net, controls=2, out=tmp_path, **QUICK)
    assert run.rows["retrain"].settings["optimizer"] == "adamw"
    assert run.rows["retrain"].per_seed["1"].passes == 20 * 276
    assert run.rows["retrain"].summary.retain_accuracy.mean > 95


def test_the_recipe_gate_is_passed_only_where_both_recipes_are_known(case, proof, tmp_path):
    recipe = Recipe(epochs=20, lr=3e-3, optimizer="adamw", batch_size=64)
    request = case.request(retrain=None, recipe=recipe)
    trained = request.audit(case.model, case.net, controls=2, out=tmp_path / "trained", **QUICK)
    assert {gate.name: gate.passed for gate in trained.record.gates}["recipe"] is True
    given = request.audit(
        case.model, case.net, reference=her_training(request.splits.retain, 1), out=tmp_path / "given", **QUICK
    )
    for run, who in (
        (proof, "the original and the retrained model"),
        (given, "the retrained model"),
    ):  # trained by her function, or by others
        gate = next(gate for gate in run.record.gates if gate.name == "recipe")
        assert gate.passed is None
        assert gate.text.startswith(f"the recipe of {who} is not known")
        assert any(gate.text in text for text in not_proved(run))
    pack(proof, tmp_path / "evidence.zip")
    with zipfile.ZipFile(tmp_path / "evidence.zip") as packed:
        gates = {gate["name"]: gate for gate in json.loads(packed.read("results.json"))["gates"]}
    assert gates["recipe"]["passed"] is None
    assert "is not known" in gates["recipe"]["text"]


def test_her_own_data_set_reaches_her_training_function(case):
    seen = []

    def retrain(samples, seed):
        seen.append(samples)
        return HerNet()

    x, y = case.train.batch(torch.arange(300))
    request = Request(TensorDataset(x, y), forget=case.ids, held_out=case.held_out, retrain=retrain)
    request.retrained(case.model, 0)
    assert isinstance(seen[0], Subset)
    assert len(seen[0]) == 276


@pytest.mark.parametrize("surrogates", [False, True])
def test_each_model_has_references_of_its_own_architecture(case, surrogates, tmp_path):
    def network(width):
        return wrap(nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10)))

    request = case.request(retrain=None, recipe=Recipe(epochs=1, lr=0.05))
    for model in (network(4), network(16)):  # the second finds a store with models for the first
        options = {"controls": 1, "surrogates": surrogates, "store": tmp_path / "store", "out": tmp_path / "run"}
        request.audit(model, model, **options, **NO_PROBES)
        for label in ("retrain", "control"):
            weights = load_file(tmp_path / "run" / "models" / "1" / f"{label}.safetensors")
            assert {name: value.shape for name, value in weights.items()} == {
                name: value.shape for name, value in model.state_dict().items()
            }


def test_a_surrogate_is_trained_again_for_a_model_whose_weights_changed(case, tmp_path):
    request = case.request(retrain=None, recipe=Recipe(epochs=20, lr=0.05))
    model = wrap(HerNet())
    options = {"controls": 1, "surrogates": True, "store": tmp_path / "store", **NO_PROBES}
    before = request.audit(model, model, out=tmp_path / "before", **options)
    model.load_state_dict(case.net.state_dict())
    after = request.audit(model, model, out=tmp_path / "after", **options)
    assert after.rows["retrain"].per_seed["1"].passes > before.rows["retrain"].per_seed["1"].passes


def test_a_retrained_model_is_wrapped_as_the_model_it_is_compared_with(case):
    request = case.request(retrain=lambda samples, seed: copy.deepcopy(case.net))
    x, _ = case.train.batch(torch.arange(9))
    for model in (case.model, wrap(case.net, mean=0.1, std=1.0)):
        assert torch.equal(request.retrained(model, 0).model(x), model(x))


def test_what_is_missing_is_said(case):
    request = case.request(retrain=None, held_out=None)
    with pytest.raises(InputError, match="give held_out="):
        request.audit(case.model, case.net)
    with pytest.raises(InputError, match="a way to retrain"):
        case.request(retrain=None).audit(case.model, case.net)
    with pytest.raises(InputError, match="reference as well as the controls"):
        case.request().audit(case.model, case.net, controls=[case.net])
    with pytest.raises(InputError, match="nothing would be retained"):
        Request((torch.zeros(2, 3), [0, 1]), forget=["0", "1"])
    with pytest.raises(InputError, match="build it with 10 outputs"):
        Request(case.train, forget=case.ids, reading=Reading(class_names=list("abcdefghij"))).unlearn(
            nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
        )


def test_cheap_surrogates_give_an_indication_and_never_a_verdict(case, tmp_path):
    run = case.request(retrain=None).audit(case.model, case.net, controls=2, surrogates=True, out=tmp_path, **QUICK)
    assert {verdict.verdict.label for verdict in run.verdicts.values()} == {"reference not comparable"}
    sentence = verdict_sentence(run, run.verdicts["original"])
    assert "surrogates" in sentence
    assert "An indication only: it is right 1." in sentence
    assert "residual knowledge" not in sentence
    assert "3 briefly trained surrogates took its place" in run.record.warnings[0]
    passes = [run.rows[label].per_seed["1"].passes for label in ("retrain", "control", "control_2")]
    assert all(0 < each <= 20 * 276 for each in passes)
    page = report(run, tmp_path / "evidence.html", out=tmp_path)[0]
    assert "An indication only" in page.read_text(encoding="utf-8")


def test_an_original_that_nothing_is_found_in_is_inconclusive(case, tmp_path):
    request = case.request(held_out=case.held_out)
    original, reference, *controls = (her_training(request.splits.retain, seed) for seed in (1, 2, 3, 4))
    run = request.audit(original, original, reference=reference, controls=controls, out=tmp_path, **QUICK)
    assert run.verdicts["original"].verdict.label == "inconclusive"
    assert "was trained on the forgotten samples" in verdict_sentence(run, run.verdicts["original"])


def test_the_recovery_radius_stands_beside_surrogates_and_equals_the_probe_itself(case, tmp_path):
    request = case.request(retrain=None)
    run = request.audit(case.model, case.net, controls=2, surrogates=True, out=tmp_path, **QUICK)
    models = {"original": case.model, "retrain": her_model(tmp_path / "models" / "1" / "retrain.safetensors")}
    evidence = Evidence(request.splits, child_seed(1, "witness"), trained_roles(0), models, (0.02, 0.04, 0.06))
    for label, alone in RecoveryRadius().measure(evidence).items():
        assert run.rows[label].per_seed["1"].probes["recovery"].value == alone.value, label
    said = run.rows["original"].probes["recovery"]
    assert said.value > max(run.rows[label].probes["recovery"].value for label in SURROGATES)
    page = report(run, tmp_path / "evidence.html", out=tmp_path)[0].read_text(encoding="utf-8")
    assert "more than the surrogates show" in page
    assert "more than retrained models show" not in page


def test_measures_are_taken_on_request_and_refused_where_they_do_not_exist(case, tmp_path):
    own = tmp_path / "mine.py"
    own.write_text("def highest_share(counts, heldout):\n    return (counts.method_right / counts.draws).max(axis=0)\n")
    request, given = case.request(), {"controls": 2, "out": tmp_path / "run", **QUICK}
    run = request.audit(
        case.model, case.net, **given | {"options": replace(OPTIONS, measures=[f"{own}:highest_share", "depth"])}
    )
    row = run.rows["original"].per_seed["1"]
    assert list(row.probes) == ["depth"]
    assert row.audits["gaussian"].measures["highest_share"].value[0] == 1.0
    assert run.record.scenario.plugins["measure"]["highest_share"]["file"] == "mine.py"
    for measures, message in (
        (["rmia"], "rmia compares many retrained models; expected one of recovery, depth, worst_case"),
        (["recovry"], "recovery"),
        ("recovery", "expected a list of measures"),
    ):
        with pytest.raises(InputError, match=message):
            request.audit(case.model, case.net, **given | {"options": replace(OPTIONS, measures=measures)})
    scaled = wrap(case.net, mean=MEAN, std=STD, scale=0.5)
    with pytest.raises(InputError, match="recovery moves all inputs alike"):
        request.audit(scaled, scaled, **given | {"options": replace(OPTIONS, measures=["recovery"])})


def test_finished_trainings_are_found_again_only_where_all_that_decides_them_is_the_same(case, tmp_path, monkeypatch):
    recipe = Recipe(epochs=2, lr=3e-3, optimizer="adamw", batch_size=64)
    request = case.request(retrain=None, recipe=recipe)

    def keys(request=request, model=case.model, seed=1, surrogates=False):
        references, options = References(controls=1, surrogates=surrogates), replace(OPTIONS, seed=seed)
        models = plan(request_study(request, model, case.net, references, options))[0].models
        return {models[label].key for label in ("retrain", "control")}

    same = keys()
    assert len(same) == 2
    assert keys(case.request(retrain=None, recipe=recipe)) == same
    others = {
        "another seed": keys(seed=2),
        "surrogates": keys(surrogates=True),
        "another recipe": keys(case.request(retrain=None, recipe=replace(recipe, epochs=3))),
        "a function": keys(case.request()),
        "other constants": keys(model=wrap(case.net, mean=MEAN, std=0.5)),
        "another model": keys(model=wrap(HerNet(), mean=MEAN, std=STD)),
        "another request": keys(Request(case.train, case.ids[:3], held_out=case.held_out, recipe=recipe)),
    }
    assert {name for name, found in others.items() if found & same} == set()
    given = {"controls": 1, "store": tmp_path / "store", **QUICK}
    first = request.audit(case.model, case.net, out=tmp_path / "first", **given)
    monkeypatch.setattr("residuum.studies.retraining.fit", None)  # nothing is trained again
    again = request.audit(case.model, case.net, out=tmp_path / "again", **given)
    assert again.record.methods == first.record.methods
    names = [f"{label}.safetensors" for label in ("retrain", "control")]
    weights = [[load_file(run.folder / "models" / "1" / name) for name in names] for run in (first, again)]
    assert all(torch.equal(one[key], two[key]) for one, two in zip(*weights, strict=True) for key in one)


def test_a_training_function_that_cannot_be_compared_is_not_kept(case, tmp_path, capsys):
    state, trained = object(), []

    def strange(samples, seed):
        trained.append(seed)
        return her_training(samples, seed, epochs=1 if state else 2)

    request, store = case.request(retrain=strange), tmp_path / "store"
    for _ in range(2):
        request.audit(case.model, case.net, controls=1, store=store, out=tmp_path / "run", progress=True, **QUICK)
    assert artifacts(store) == []
    assert len(trained) == 4
    assert "the next one starts again: training reads an object of type object" in capsys.readouterr().err


def test_an_audit_says_what_it_does_and_how_long_it_takes(case, tmp_path, capsys):
    given = {"controls": 1, "store": tmp_path / "store", "out": tmp_path / "run", **QUICK}
    request = case.request(retrain=None, recipe=Recipe(epochs=1))
    request.audit(case.model, case.net, **given)
    assert capsys.readouterr().err == ""
    request.audit(case.model, case.net, progress=True, **given | {"draws": 31})
    said = capsys.readouterr().err
    assert "9 stages: 8 finished, 1 to run" in said
    assert "work: about" in said
    assert "[2/9] retrain retrain (seed 1)" in said
    assert "[9/9] audit gaussian (seed 1)" in said
    with pytest.raises(InputError, match=r"expected work of at most 1e-09 days, got about .*--yes"):
        request.audit(case.model, case.net, resources=Resources(most_days=1e-9), **given | {"draws": 32})


def test_a_reference_that_is_not_comparable_can_be_accepted(case, tmp_path):
    poor, others = HerNet(), [her_training(case.request().splits.retain, seed) for seed in (1, 2)]
    given = {"reference": poor, "controls": others, "out": tmp_path, **QUICK}
    run = case.request().audit(case.model, case.net, **given)
    assert run.verdicts["unlearned"].verdict.label == "reference not comparable"
    run = case.request().audit(case.model, case.net, **given | {"options": replace(OPTIONS, accept_reference=True)})
    assert run.verdicts["unlearned"].verdict.label != "reference not comparable"
    assert verdict_sentence(run, run.verdicts["unlearned"]).startswith("Conditional on an accepted reference")


THREADS = set()


class Watched(HerNet):
    def forward(self, x):
        THREADS.add(threading.get_ident())
        return super().forward(x)


def test_an_audit_uses_the_threads_of_torch_and_counts_the_same(case, tmp_path):
    nets = []
    for seed in range(4):
        nets.append(Watched())
        nets[-1].load_state_dict(her_training(case.train, seed, epochs=3).state_dict())
    counts, before = [], torch.get_num_threads()
    for threads in (1, 3):
        torch.set_num_threads(threads)
        THREADS.clear()
        try:
            run = case.request(retrain=None).audit(
                wrap(nets[0], mean=MEAN, std=STD), nets[1], reference=nets[2], controls=[nets[3]], out=tmp_path, **QUICK
            )
        finally:
            torch.set_num_threads(before)
        counts.append([Counts.load(tmp_path / "counts" / "1" / label / "gaussian.npz") for label in run.rows])
        assert (len(THREADS) > 1) == (threads > 1)
    for one, many in zip(*counts, strict=True):
        assert (one.method_right == many.method_right).all()
        assert (one.reference_right == many.reference_right).all()


def test_forgetting_a_sample_removes_the_retrained_models_that_saw_it(case, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    request = case.request(retrain=None, recipe=Recipe(epochs=1))
    request.audit(case.model, case.net, controls=1, store=".residuum/store", **QUICK)

    def kinds():
        return {artifact.folder.parent.name for artifact in artifacts(tmp_path / ".residuum" / "store")}

    assert run_command(["forget", request.forget_ids[0]]) == 0
    assert kinds() == {"retrain"}  # which never saw it
    assert run_command(["forget", request.splits.retain.ids[0]]) == 0
    said = capsys.readouterr().out
    assert "removed: retrain control (seed 1)" in said
    assert "holds such samples (--runs cleans it): " in said
    assert kinds() == set()
