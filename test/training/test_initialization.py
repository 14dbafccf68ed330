"""Runs that start from another model, or learn from a teacher."""

from dataclasses import replace

import pytest
import torch
from tiny_runs import (
    MATCHES,
    assert_same_weights,
    scalars,
    tiny,
)

from lgc_ros.errors import ConfigError
from lgc_ros.filter.checkpoint import load_checkpoint, save_checkpoint
from training.data.batches import Batches
from training.trainer import train


def test_training_continues_from_a_model(dumps, tmp_path):
    first = train(tiny(steps=4), tmp_path / "first")
    tuned = tiny(steps=1, init=str(first), learning_rate=0.0)
    assert_same_weights(train(tuned, tmp_path / "tuned"), first)
    with pytest.raises(ConfigError, match="the configuration requests"):
        train(tiny(init=str(first), width=8), tmp_path / "other")


def test_the_initial_model_is_validated_before_the_first_step(dumps, tmp_path):
    first = train(tiny(steps=2), tmp_path / "first")
    tuned = tiny(steps=2, init=str(first), validation=(str(dumps / "good.hdf5"),))
    train(tuned, tmp_path / "tuned")
    assert set(scalars(tmp_path / "tuned")["validation/map_8pt"]) == {0, 2}


def test_a_margin_shifts_logits_and_what_is_kept_with_them(tmp_path):
    start, info = load_checkpoint(train(tiny(steps=4), tmp_path / "first"))
    path = tmp_path / "start.safetensors"
    save_checkpoint(path, start, replace(info, keep_above=0.5, trust_above=4.0))
    still = tiny(steps=1, learning_rate=0.0, margin=3.0)
    xs = Batches(still.sources, steps=1, batch=2, matches=MATCHES)[0].xs
    once = train(replace(still, init=str(path)), tmp_path / "once")
    twice = train(replace(still, init=str(once)), tmp_path / "twice")
    for result in (once, twice):  # what has the margin already is not shifted again
        shifted, info = load_checkpoint(result)
        torch.testing.assert_close(shifted(xs), start(xs) - 3)
        assert (info.keep_above, info.trust_above) == (-2.5, 1.0)


def test_a_shallower_network_takes_blocks_of_a_deeper_one(tmp_path):
    deep = train(tiny(steps=2, blocks=5), tmp_path / "deep")
    shallow = train(
        tiny(steps=1, blocks=3, init=str(deep), learning_rate=0.0), tmp_path / "shallow"
    )
    before, after = (load_checkpoint(path)[0] for path in (deep, shallow))
    for block, of in zip(after.body, (0, 2, 4), strict=True):
        for name, value in block.state_dict().items():
            assert torch.equal(value, before.body[of].state_dict()[name])
    with pytest.raises(ConfigError, match="the configuration requests"):
        train(tiny(init=str(shallow), blocks=5), tmp_path / "deeper")


def test_distillation_moves_logits_toward_those_of_the_teacher(tmp_path):
    teacher, info = load_checkpoint(train(tiny(steps=40, beta_from=100), tmp_path / "teacher"))
    path = tmp_path / "teacher.safetensors"
    save_checkpoint(path, teacher, replace(info, keep_above=0.5, trust_above=2.0))
    lesson = tiny(blocks=1, teacher=str(path), alpha=0.0, beta_from=10**6, seed=3)
    early = train(replace(lesson, steps=2), tmp_path / "early")
    late = train(replace(lesson, steps=120), tmp_path / "late")
    xs = Batches(lesson.sources, steps=1, batch=16, matches=MATCHES, seed=99)[0].xs
    taught, learned = teacher(xs), [load_checkpoint(path)[0](xs) for path in (early, late)]
    before, after = (torch.mean((logits - taught).abs()) for logits in learned)
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


def test_side_information_can_be_added_and_removed(dumps, tmp_path):
    first = train(tiny(steps=4, side=("mutual",)), tmp_path / "first")
    names = ("ratio", "consensus", "mutual")
    more = train(tiny(steps=1, init=str(first), learning_rate=0.0, side=names), tmp_path / "more")
    before, after = (load_checkpoint(path)[0].input.weight for path in (first, more))
    assert torch.equal(after[:, :4], before[:, :4])
    assert torch.equal(after[:, -1], before[:, -1])
    assert not after[:, 4:-1].any()
    again = tiny(steps=1, init=str(more), learning_rate=0.0, side=("mutual",))
    assert_same_weights(train(again, tmp_path / "again"), first)
