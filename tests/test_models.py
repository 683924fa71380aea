import pytest
import torch
from torch import nn

from dpflbench.errors import DpflbenchError
from dpflbench.interfaces import Model
from dpflbench.tasks.models import MODELS, check_module, parameter_count

COUNTS = {"linear": 11, "softmax": 510, "mnist_cnn": 4266, "lenet5": 61706, "femnist_cnn": 67026, "resnet20": 272474}


def default(name):
    model = MODELS[name]()
    return model.build(model.default_input, model.default_outputs)


def test_every_model_has_a_known_count():
    assert set(COUNTS) == set(MODELS)


@pytest.mark.parametrize("name", COUNTS)
def test_a_model_has_exactly_the_parameters_of_the_paper_and_the_promised_shape(name):
    model = MODELS[name]()
    assert isinstance(model, Model)
    module = default(name)
    assert parameter_count(module) == COUNTS[name]
    assert module(torch.rand(2, *model.default_input)).shape == (2, model.default_outputs)


@pytest.mark.parametrize("name", COUNTS)
def test_a_model_of_ours_passes_the_check_and_keeps_no_buffers(name):
    check_module(default(name))
    assert list(default(name).buffers()) == []


def test_softmax_on_raw_mnist_has_7850_parameters():
    assert parameter_count(MODELS["softmax"]().build((1, 28, 28), 10)) == 784 * 10 + 10


def test_an_image_without_a_channel_axis_has_one_channel():
    module = MODELS["mnist_cnn"]().build((28, 28), 10)
    assert parameter_count(module) == 4266
    assert module(torch.rand(2, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize("name", ["mnist_cnn", "lenet5", "femnist_cnn", "resnet20"])
def test_a_convolutional_model_refuses_flat_features_by_name(name):
    with pytest.raises(DpflbenchError, match=rf"{name}: input shape \(50,\)"):
        MODELS[name]().build((50,), 10)


def test_lenet_refuses_images_smaller_than_its_kernels():
    with pytest.raises(DpflbenchError, match=r"lenet5: input shape .* too small"):
        MODELS["lenet5"]().build((1, 8, 8), 10)


def test_the_number_of_groups_must_divide_the_channels():
    with pytest.raises(DpflbenchError, match="femnist_cnn: groups = 3; allowed: divisors of its 8 channels"):
        MODELS["femnist_cnn"](groups=3).build((1, 28, 28), 62)


@pytest.mark.parametrize("layer", [nn.BatchNorm2d(4), nn.InstanceNorm2d(4, track_running_stats=True)])
def test_batch_statistics_are_refused_by_name(layer):
    with pytest.raises(DpflbenchError, match=rf"^model.1 \({type(layer).__name__}\) keeps batch statistics"):
        check_module(nn.Sequential(nn.Conv2d(1, 4, 3), layer))


def test_instance_norm_without_running_statistics_is_a_sample_s_own_affair():
    check_module(nn.Sequential(nn.Conv2d(1, 4, 3), nn.InstanceNorm2d(4)))


@pytest.mark.parametrize("layer", [nn.Dropout(0.1), nn.LSTM(3, 3, num_layers=2, dropout=0.5)])
def test_dropout_is_refused_by_name(layer):
    with pytest.raises(DpflbenchError, match=rf"^model.1 \({type(layer).__name__}\) draws dropout masks"):
        check_module(nn.Sequential(nn.Linear(3, 3), layer))


def test_dropout_at_rate_zero_does_nothing_and_is_let_through():
    check_module(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0)))


def test_a_shared_parameter_is_refused_with_both_names():
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight = module[0].weight
    with pytest.raises(DpflbenchError, match=r"1\.weight: shares its parameter with 0\.weight"):
        check_module(module)


def test_a_module_without_parameters_is_refused():
    with pytest.raises(DpflbenchError, match="no trainable parameters"):
        check_module(nn.Sequential(nn.Flatten()))
