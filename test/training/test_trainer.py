"""Training learns, survives what happens to processes, and never mixes runs."""

import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

import training.run_log
import training.trainer
from lgc_ros.errors import CheckpointError, ConfigError, DatasetError
from lgc_ros.filter.checkpoint import ModelInfo, load_checkpoint, save_checkpoint
from lgc_ros.filter.network import CorrespondenceNetwork, NetworkConfig
from training.config import TrainConfig, read_train_config
from training.data.batches import Batches, SourceConfig
from training.data.dump import Dump, write_dump
from training.data.simulation import simulate_pair
from training.objective import batch_losses, monitored_losses
from training.processes import Process
from training.schedule import learning_rate, regression_weight
from training.trainer import train
from training.validation import ValidationScore, validate

ROOT = Path(training.trainer.__file__).parent.parent
CONFIGS = ROOT / "training" / "configs"
MATCHES = 48


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Sums in one order, so that runs can be compared to the last bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    """``good.hdf5``; ``mixed.hdf5``, one of whose five pairs holds NaN; ``broken.hdf5``."""
    folder = tmp_path_factory.mktemp("dumps")
    pairs = (simulate_pair(np.random.default_rng(seed), 2 * MATCHES) for seed in range(40))
    good = [pair for pair in pairs if (pair.ys < 1e-4).mean() > 0.4][:4]
    xs = good[0].xs.copy()
    xs[5, 2] = np.nan
    broken = replace(good[0], xs=xs)
    write_dump(folder / "good.hdf5", good)
    write_dump(folder / "mixed.hdf5", [*good, broken])
    write_dump(folder / "broken.hdf5", [broken])
    return folder


def tiny(**options):
    defaults = {
        "name": "tiny",
        "sources": (SourceConfig("simulation"),),
        "blocks": 2,
        "width": 16,
        "matches": MATCHES,
        "batch": 4,
        "steps": 8,
        "learning_rate": 3e-3,
        "beta_from": 4,
        "clip": 5.0,
        "save_every": 4,
        "workers": 0,
    }
    return TrainConfig(**{**defaults, **options})


def weights(path):
    return load_checkpoint(path)[0].state_dict()


def assert_same_weights(first, second, atol=0.0):
    first, second = weights(first), weights(second)
    assert first.keys() == second.keys()
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=0, atol=atol)


def skipped(out):
    return torch.load(out / "resume.pt", weights_only=True)["skipped"]


def test_training_lowers_the_loss_on_pairs_it_has_not_seen(tmp_path):
    config = tiny(steps=60, batch=8, beta_from=40, learning_rate=1e-2)
    unseen = Batches(config.sources, steps=1, batch=32, matches=MATCHES, seed=99)[0]

    def loss(network):
        with torch.no_grad():
            return batch_losses(config, 0, network.eval()(unseen.xs), unseen)["loss"].item()

    torch.manual_seed(config.seed)
    before = loss(CorrespondenceNetwork(config.network))
    after = loss(load_checkpoint(train(config, tmp_path))[0])
    assert after < 0.9 * before


@pytest.mark.parametrize("kind", ["hybrid", "classification", "essential", "direct"])
@pytest.mark.parametrize("context", ["cn", "pointnet", "none"])
def test_every_variant_of_the_ablations_trains(tmp_path, kind, context):
    config = tiny(loss=kind, context=context, side=("ratio",), steps=2, beta_from=1)
    _, info = load_checkpoint(train(config, tmp_path))
    assert info.network.context == context
    assert info.network.head == ("direct" if kind == "direct" else "weights")
    assert info.side == ("ratio",)
    assert info.training["config"]["loss"] == kind


def test_the_regression_loss_comes_in_after_a_while():
    config = tiny(beta=0.1, beta_from=20)
    batch = Batches(config.sources, steps=1, batch=2, matches=MATCHES)[0]
    logits = torch.randn(2, MATCHES)
    early, late = (batch_losses(config, step, logits, batch) for step in (19, 20))
    assert set(early) == {"loss", "classification"}
    expected = late["classification"] + 0.1 * late["regression"]
    assert late["loss"].item() == pytest.approx(expected.item())


def test_the_weight_of_the_regression_loss_grows_over_a_ramp():
    config = tiny(beta=0.4, beta_from=20, beta_ramp=4)
    weights = [regression_weight(config, step) for step in (0, 19, 20, 21, 23, 500)]
    assert weights == pytest.approx([0, 0, 0.1, 0.2, 0.4, 0.4])


def test_the_kind_of_regression_is_chosen(tmp_path):
    config = tiny(beta_from=0)
    batch = Batches(config.sources, steps=1, batch=2, matches=MATCHES)[0]
    logits = torch.randn(2, MATCHES)

    def regression(**options):
        return batch_losses(replace(config, **options), 0, logits, batch)["regression"].item()

    plain, conditioned = regression(), regression(conditioned=True)
    epipolar = regression(regression="epipolar", conditioned=True)
    assert len({plain, conditioned, epipolar}) == 3
    train(tiny(regression="epipolar", conditioned=True, pair_clip=0.05, beta_from=0), tmp_path)


def test_products_in_bfloat16_learn_nearly_the_same(tmp_path):
    config = tiny(steps=40, batch=8, learning_rate=5e-3)
    unseen = Batches(config.sources, steps=1, batch=64, matches=MATCHES, seed=99)[0]
    losses = {}
    for precision in ("float32", "bfloat16"):
        last = train(replace(config, precision=precision), tmp_path / precision)
        network = load_checkpoint(last)[0]
        assert {value.dtype for value in network.state_dict().values()} == {torch.float32}
        losses[precision] = monitored_losses(config, network, unseen)["classification"]
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.05)
    assert losses["bfloat16"] != losses["float32"]


def test_the_learning_rate_warms_up_and_decays():
    config = tiny(learning_rate=1.0, warmup=10, steps=110, decay="cosine")
    assert learning_rate(config, 0) == pytest.approx(0.1)
    assert learning_rate(config, 9) == learning_rate(config, 10) == pytest.approx(1.0)
    assert learning_rate(config, 60) == pytest.approx(0.5)
    assert learning_rate(config, 109) < 0.01
    assert learning_rate(tiny(learning_rate=1e-4), 400_000) == 1e-4
    config = replace(config, cooldown=20)
    assert learning_rate(config, 89) == learning_rate(config, 90) == pytest.approx(1.0)
    assert learning_rate(config, 100) == pytest.approx(0.5)
    assert learning_rate(config, 109) < 0.01


TWO_PROCESSES = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def start(config, out, *launcher, program=("-m", "training", "train")):
    """The command line as users call it, in a process of its own."""
    path = out.with_suffix(".yaml")
    content = {**config.as_dict(), "sources": [dict(vars(s)) for s in config.sources]}
    path.write_text(
        yaml.safe_dump({k: list(v) if isinstance(v, tuple) else v for k, v in content.items()})
    )
    return subprocess.Popen(
        [sys.executable, *launcher, *program, path, "--out", out],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_run_goes_on_to_the_same_weights(tmp_path, how):
    """Ctrl-C and cluster managers send signals to all processes of a run."""
    endless = tiny(steps=10**6, average=0.9, workers=1)
    process = start(endless, tmp_path / "run")
    while not (tmp_path / "run" / "resume.pt").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    os.killpg(process.pid, how)
    _, errors = process.communicate(timeout=120)
    step = torch.load(tmp_path / "run" / "resume.pt", weights_only=True)["step"]
    if how == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130
        assert f"training stopped at step {step} of 1000000" in " ".join(errors.split())
    rest = replace(endless, steps=step + 5, workers=0)
    assert_same_weights(train(rest, tmp_path / "run"), train(rest, tmp_path / "at_once"))


@pytest.mark.slow
def test_two_processes_learn_the_same_as_one(dumps, tmp_path):
    """Also where a batch holds NaN: all processes must then skip it."""
    mixed = SourceConfig("dump", path=str(dumps / "mixed.hdf5"), weight=0.3)
    config = tiny(sources=(SourceConfig("simulation"), mixed), steps=10, beta_from=5)
    process = start(config, tmp_path / "two", *TWO_PROCESSES)
    alone = train(config, tmp_path / "one")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert 0 < skipped(tmp_path / "one") < 10
    assert skipped(tmp_path / "two") == skipped(tmp_path / "one")
    one, two = load_checkpoint(alone)[0], load_checkpoint(tmp_path / "two/last.safetensors")[0]
    batch = Batches(config.sources, steps=1, batch=4, matches=MATCHES)[0]
    torch.testing.assert_close(one(batch.xs), two(batch.xs), rtol=0, atol=1e-5)
    for (name, value), other in zip(one.named_parameters(), two.parameters(), strict=True):
        # What is added before a normalization is taken away by it: only noise moves such a bias.
        if not name.endswith("linear.bias"):
            torch.testing.assert_close(value, other, rtol=0, atol=1e-5)


THREADS_LEFT_BY_TRAINING = """
import sys
from pathlib import Path
from training.config import read_train_config
from training.trainer import train

def threads():
    return {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}

before = threads()
train(read_train_config(Path(sys.argv[1])), Path(sys.argv[3]))
left = threads() - before
sys.exit(", ".join(left) if left else 0)
"""


@pytest.mark.slow
def test_a_process_ends_without_threads_of_the_process_group(tmp_path):
    """One that still holds a tensor when the interpreter ends would abort the process."""
    script = tmp_path / "script.py"
    script.write_text(THREADS_LEFT_BY_TRAINING)
    process = start(tiny(), tmp_path / "two", *TWO_PROCESSES, program=(script,))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


def test_processes_must_be_able_to_share_the_batch(monkeypatch, tmp_path):
    from contextlib import nullcontext

    one_of_three = nullcontext(Process(0, 3, torch.device("cpu")))
    monkeypatch.setattr(training.trainer, "process_group", lambda: one_of_three)
    with pytest.raises(ConfigError, match="batch 4 cannot be shared by 3 processes"):
        train(tiny(), tmp_path)


@pytest.mark.parametrize("context", ["cn", "none"])
def test_a_batch_with_nan_is_skipped_counted_and_reported(dumps, tmp_path, caplog, context):
    mixed = SourceConfig("dump", path=str(dumps / "mixed.hdf5"))
    config = tiny(sources=(mixed,), steps=12, batch=2, beta_from=0, context=context)
    result = train(config, tmp_path)
    assert 0 < skipped(tmp_path) < 12
    assert f"{skipped(tmp_path)} so far" in caplog.text
    assert all(torch.isfinite(value).all() for value in weights(result).values())


def test_nothing_is_learned_from_batches_with_nan(dumps, tmp_path):
    config = tiny(sources=(SourceConfig("dump", path=str(dumps / "broken.hdf5")),), steps=3)
    torch.manual_seed(config.seed)
    initial = CorrespondenceNetwork(config.network).state_dict()
    trained = weights(train(config, tmp_path))
    assert skipped(tmp_path) == 3
    assert all(torch.equal(trained[name], initial[name]) for name in initial)


def test_another_configuration_in_the_same_folder_is_refused(tmp_path):
    train(tiny(steps=4), tmp_path)
    with pytest.raises(ConfigError, match=r"resume\.pt belongs to .*different: learning_rate"):
        train(tiny(steps=4, learning_rate=0.5), tmp_path)
    longer = train(tiny(steps=6), tmp_path)
    assert load_checkpoint(longer)[1].training["step"] == 6


def test_a_broken_resume_point_is_named(tmp_path):
    (tmp_path / "resume.pt").write_bytes(b"half a file")
    with pytest.raises(CheckpointError, match=r"resume\.pt cannot be read .*remove it"):
        train(tiny(), tmp_path)


def test_validation_accuracy_picks_the_best_weights(monkeypatch, dumps, tmp_path):
    """Those of the robust pose, and beside them those of the closed form."""
    found = iter([(2, 1), (6, 2), (4, 3)])

    def scored(*args):
        robust, closed = (np.repeat([0.0, 180.0], [right, 10 - right]) for right in next(found))
        return ValidationScore(robust, closed, 0.0, 0.0)

    monkeypatch.setattr(training.trainer, "validate", scored)
    config = tiny(steps=6, validate_every=2, validation=(str(dumps / "good.hdf5"),))
    best = train(config, tmp_path)
    assert best.name == "best.safetensors"
    _, info = load_checkpoint(best)
    assert info.training["step"] == 4
    assert info.training["validation_map"] == 0.6
    assert info.training["validation_map_8pt"] == 0.2
    assert load_checkpoint(tmp_path / "best_8pt.safetensors")[1].training["step"] == 6
    assert load_checkpoint(tmp_path / "last.safetensors")[1].training["step"] == 6


def scalars(out):
    """What TensorBoard shows: by name, the values by step."""
    events = EventAccumulator(str(out)).Reload()
    return {
        name: {event.step: event.value for event in events.Scalars(name)}
        for name in events.Tags()["scalars"]
    }


def test_curves_are_means_and_both_methods_are_watched(monkeypatch, dumps, tmp_path):
    monkeypatch.setattr(training.run_log, "LOG_EVERY", 4)
    seen = []
    update = training.trainer._Run._update

    def noted(self, batch):
        losses = update(self, batch)
        seen.append(losses["classification"])
        return losses

    monkeypatch.setattr(training.trainer._Run, "_update", noted)
    good = str(dumps / "good.hdf5")
    train(tiny(steps=8, validate_every=4, validation=(good,), watch_pairs=6), tmp_path)
    shown = scalars(tmp_path)
    means = {4: np.mean(seen[:4]), 8: np.mean(seen[4:])}
    assert shown["train/classification"] == pytest.approx(means, rel=1e-5)
    for name in ("map5", "auc20", "map5_8pt", "auc20_8pt", "precision"):
        assert set(shown[f"good/{name}"]) == {4, 8}
    for name in ("training", "validation"):
        assert set(shown[f"loss_classification/{name}"]) == {4, 8}
        assert set(shown[f"loss_regression/{name}"]) == {4, 8}


def test_the_model_gone_on_from_is_validated_first(dumps, tmp_path):
    first = train(tiny(steps=2), tmp_path / "first")
    tuned = tiny(steps=2, init=str(first), validation=(str(dumps / "good.hdf5"),))
    train(tuned, tmp_path / "tuned")
    assert set(scalars(tmp_path / "tuned")["validation/map_8pt"]) == {0, 2}


class KnowsTheAnswer(nn.Module):
    """Gives each match of the pairs of a dump, in their order, the logit its label asks for."""

    def __init__(self, dump, right, wrong):
        super().__init__()
        self.where = nn.Parameter(torch.zeros(1))
        self.labels = iter([dump[i].ys < 1e-4 for i in range(len(dump))])
        self.right, self.wrong = right, wrong

    def forward(self, x):
        labels = torch.from_numpy(next(self.labels))
        return torch.where(labels, self.right, self.wrong)[None]


def test_validation_measures_what_the_network_keeps(dumps):
    dump = Dump(dumps / "good.hdf5")
    info = ModelInfo("any", "sift", NetworkConfig())
    perfect = validate(KnowsTheAnswer(dump, 3.0, -3.0), dump, info, 1e-4, 100)
    assert perfect.precision == perfect.recall == 1
    blind = validate(KnowsTheAnswer(dump, 3.0, 3.0), dump, info, 1e-4, 100)
    assert blind.recall == 1
    assert blind.precision < 0.8
    assert perfect.headline > blind.headline
    assert perfect.closed_form > blind.closed_form
    assert perfect.scalars()["map20_8pt"] > blind.scalars()["map20_8pt"]


def test_training_goes_on_from_a_model(dumps, tmp_path):
    first = train(tiny(steps=4), tmp_path / "first")
    tuned = tiny(steps=1, init=str(first), learning_rate=0.0)
    assert_same_weights(train(tuned, tmp_path / "tuned"), first)
    with pytest.raises(ConfigError, match="the configuration asks for"):
        train(tiny(init=str(first), width=8), tmp_path / "other")


def test_a_margin_shifts_logits_and_what_is_kept_with_them(tmp_path):
    start, info = load_checkpoint(train(tiny(steps=4), tmp_path / "first"))
    path = tmp_path / "start.safetensors"
    save_checkpoint(path, start, replace(info, keep_above=0.5, trust_above=4.0))
    still = tiny(steps=1, learning_rate=0.0, margin=3.0)
    xs = Batches(still.sources, steps=1, batch=2, matches=MATCHES)[0].xs
    once = train(replace(still, init=str(path)), tmp_path / "once")
    twice = train(replace(still, init=str(once)), tmp_path / "twice")
    for result in (once, twice):  # what has the margin already is not shifted again
        shifted, said = load_checkpoint(result)
        torch.testing.assert_close(shifted(xs), start(xs) - 3)
        assert (said.keep_above, said.trust_above) == (-2.5, 1.0)


def test_classification_learns_log_odds_less_the_margin():
    config = tiny(beta_from=10)
    batch = Batches(config.sources, steps=1, batch=2, matches=MATCHES)[0]
    logits = torch.randn(2, MATCHES)
    plain = batch_losses(config, 0, logits, batch)
    assert batch_losses(replace(config, margin=2.0), 0, logits - 2, batch) == plain


def test_a_shallower_network_takes_blocks_of_a_deeper_one(tmp_path):
    deep = train(tiny(steps=2, blocks=5), tmp_path / "deep")
    shallow = train(
        tiny(steps=1, blocks=3, init=str(deep), learning_rate=0.0), tmp_path / "shallow"
    )
    before, after = (load_checkpoint(path)[0] for path in (deep, shallow))
    for block, of in zip(after.body, (0, 2, 4), strict=True):
        for name, value in block.state_dict().items():
            assert torch.equal(value, before.body[of].state_dict()[name])
    with pytest.raises(ConfigError, match="the configuration asks for"):
        train(tiny(init=str(shallow), blocks=5), tmp_path / "deeper")


def test_a_pupil_comes_to_say_what_its_teacher_says(tmp_path):
    teacher, info = load_checkpoint(train(tiny(steps=40, beta_from=100), tmp_path / "teacher"))
    path = tmp_path / "teacher.safetensors"
    save_checkpoint(path, teacher, replace(info, keep_above=0.5, trust_above=2.0))
    lesson = tiny(blocks=1, teacher=str(path), alpha=0.0, beta_from=10**6, seed=3)
    early = train(replace(lesson, steps=2), tmp_path / "early")
    late = train(replace(lesson, steps=120), tmp_path / "late")
    xs = Batches(lesson.sources, steps=1, batch=16, matches=MATCHES, seed=99)[0].xs
    said, learned = teacher(xs), [load_checkpoint(path)[0](xs) for path in (early, late)]
    before, after = (torch.mean((logits - said).abs()) for logits in learned)
    assert after < 0.7 * before
    pupil = load_checkpoint(late)[1]
    assert (pupil.keep_above, pupil.trust_above) == (0.5, 2.0)


def test_a_teacher_of_other_side_information_is_refused(tmp_path):
    teacher = train(tiny(steps=1), tmp_path / "teacher")
    with pytest.raises(ConfigError, match=r"teacher .* side information"):
        train(tiny(teacher=str(teacher), side=("ratio",)), tmp_path / "pupil")
    with pytest.raises(ConfigError, match="a teacher provides logits"):
        tiny(teacher=str(teacher), loss="direct")
    with pytest.raises(ConfigError, match="the margin is that of the teacher"):
        tiny(teacher=str(teacher), margin=1.0)


def test_side_information_can_be_added_and_taken_away(dumps, tmp_path):
    first = train(tiny(steps=4, side=("mutual",)), tmp_path / "first")
    names = ("ratio", "consensus", "mutual")
    more = train(tiny(steps=1, init=str(first), learning_rate=0.0, side=names), tmp_path / "more")
    before, after = (load_checkpoint(path)[0].input.weight for path in (first, more))
    assert torch.equal(after[:, :4], before[:, :4])
    assert torch.equal(after[:, -1], before[:, -1])
    assert not after[:, 4:-1].any()
    again = tiny(steps=1, init=str(more), learning_rate=0.0, side=("mutual",))
    assert_same_weights(train(again, tmp_path / "again"), first)


def test_a_dump_without_the_side_information_is_refused_at_once(dumps, tmp_path):
    import h5py

    path = tmp_path / "foreign.hdf5"
    path.write_bytes((dumps / "good.hdf5").read_bytes())
    with h5py.File(path, "a") as file:
        del file["mutuals"]
    with pytest.raises(DatasetError, match=r"foreign\.hdf5 holds no mutual"):
        train(tiny(side=("mutual",), validation=(str(path),)), tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("learning_rte: 1", "'learning_rte', did you mean 'learning_rate'"),
        ("loss: l2", "loss is 'l2', it must be one of hybrid"),
        ("regression: pose", "regression is 'pose', it must be one of essential, epipolar"),
        ("precision: float16", "precision is 'float16', it must be one of float32, bfloat16"),
        ("context: attention", "context is 'attention'"),
        ("side: [scale]", "unknown side information scale; known are ratio, mutual"),
        ("steps: many", "steps is 'many', it must be a number"),
        ("batch: 2.5", "batch is 2.5, it must be a whole number"),
        ("matches: 0", "matches is 0, it must be at least 1"),
        ("sources: []", "sources is empty"),
        ("sources: [{kid: dump}]", "unknown key 'kid', did you mean 'kind'"),
        ("init: $NO_SUCH_FOLDER/a", "environment variable NO_SUCH_FOLDER is not set"),
        ("[", "cannot be read as YAML"),
        ("", "'key: value' lines"),
    ],
)
def test_a_wrong_configuration_is_named(tmp_path, content, complaint):
    path = tmp_path / "train.yaml"
    needed = "" if content in ("", "[") else "name: a\n"
    needed += "sources: [{kind: simulation}]\n" if needed and "sources" not in content else ""
    path.write_text(needed + content)
    with pytest.raises(ConfigError, match=rf"train\.yaml.*{complaint}"):
        read_train_config(path)


def test_keys_can_be_replaced_and_numbers_written_freely(tmp_path):
    path = tmp_path / "train.yaml"
    path.write_text("name: a\nsources: [{kind: simulation}]\nlearning_rate: 1e-4\nsteps: 5")
    config = read_train_config(path, {"steps": "1e3", "side": "[ratio]", "loss": "direct"})
    assert (config.learning_rate, config.steps) == (1e-4, 1000)
    assert (config.side, config.loss) == (("ratio",), "direct")


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("train_*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_understood(path, monkeypatch, tmp_path):
    monkeypatch.setenv("LGC_DUMP_DIR", str(tmp_path))
    config = read_train_config(path)
    assert all(str(tmp_path) in s.path for s in config.sources if s.kind == "dump")


def test_the_paper_is_followed_to_the_letter(monkeypatch, tmp_path):
    monkeypatch.setenv("LGC_DUMP_DIR", str(tmp_path))
    config = read_train_config(CONFIGS / "train_paper.yaml")
    assert (config.blocks, config.width, config.context, config.side) == (12, 128, "cn", ())
    assert (config.loss, config.alpha, config.beta, config.beta_from) == ("hybrid", 1, 0.1, 20_000)
    assert (config.learning_rate, config.batch, config.decay) == (1e-4, 32, "constant")
    assert (config.warmup, config.average) == (0, 0)
    assert config.label_threshold == 1e-2**2


def test_progress_is_logged_where_there_is_no_terminal(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    train(tiny(steps=4, save_every=2), tmp_path)
    assert "step 2 of 4: loss" in caplog.text
