"""Chapter 2: convolution, from its definition to networks, and the layers next to it.

What deep learning calls convolution is *cross-correlation*: the kernel is laid over the input as
it is. The convolution of mathematics turns it round first. The kernel is learned, so the two
differ in the order in which its numbers are written, and in nothing else.

Every function says what it computes in a few lines; the modules use PyTorch's fused kernels, and
the tests hold the two together.

Source: Goodfellow, Bengio and Courville, "Deep Learning", 2016, section 9.1; Dumoulin and Visin,
"A guide to convolution arithmetic for deep learning", 2016.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tutorial_lib import _check
from tutorial_lib.dense import Linear, fan_in_uniform

Array = NDArray[Any]
PADDING_MODES = ("zeros", "circular")
POOLING = ("max", "mean", "flatten")


# By hand


def conv1d_loop(
    x: Float[Array, "C_in T"], weight: Float[Array, "C_out C_in K"], bias: Float[Array, "C_out"]
) -> Float[Array, "C_out T_out"]:
    """The definition of convolution as four loops, for one example: slow, and nothing hidden.

    The kernel is not turned round: this is cross-correlation, as everywhere in deep learning.

    Args:
        x: ``(C_in, T)``, one sequence.
        weight: ``(C_out, C_in, K)``, a kernel of K places for each pair of channels.
        bias: ``(C_out,)``.

    Returns:
        ``(C_out, T - K + 1)``, one number for each place where the kernel fits.

    Raises:
        TypeError: if an array does not hold floats.
        ValueError: if the shapes do not fit, or the kernel is longer than the input.

    Example:
        >>> import numpy as np
        >>> from tutorial_lib.convolution import conv1d_loop
        >>> x, difference = np.array([[1.0, 4.0, 9.0, 16.0]]), np.array([[[-1.0, 1.0]]])
        >>> conv1d_loop(x, difference, np.zeros(1))
        array([[3., 5., 7.]])
    """
    _check.array("x", x, "C_in T")
    _check.array("weight", weight, "C_out C_in K")
    _check.array("bias", bias, "C_out")
    _check_channels(x.shape[0], weight.shape, bias.shape)
    C_out, C_in, K = weight.shape
    T_out = out_length(x.shape[1], K)
    y = np.zeros((C_out, T_out))
    for o in range(C_out):
        for t in range(T_out):
            y[o, t] = bias[o]
            for c in range(C_in):
                for k in range(K):
                    y[o, t] += weight[o, c, k] * x[c, t + k]
    return y


def out_length(
    length: int, kernel_size: int, stride: int = 1, padding: int = 0, dilation: int = 1
) -> int:
    """How many places a kernel fits in: ``(T + 2P - span) // stride + 1``.

    Args:
        length: T, the input's length.
        kernel_size: K, taps of the kernel.
        stride: places between two outputs.
        padding: P, places added at each end.
        dilation: places between two taps; the kernel spans ``dilation * (K - 1) + 1`` places.

    Returns:
        The output's length, at least 1.

    Raises:
        TypeError: if an argument is not an int.
        ValueError: if one is too small, or the kernel spans more than the padded input.

    Example:
        >>> from tutorial_lib.convolution import out_length
        >>> out_length(40, kernel_size=5, stride=2, padding=1)
        19
    """
    _check.integer("length", length)
    _check.integer("kernel_size", kernel_size)
    _check.integer("stride", stride)
    _check.integer("padding", padding, at_least=0)
    _check.integer("dilation", dilation)
    span = dilation * (kernel_size - 1) + 1
    if span > length + 2 * padding:
        raise ValueError(
            f"kernel_size must fit the padded input: kernel_size={kernel_size} with "
            f"dilation={dilation} spans {span} places, the input has {length} + 2 * {padding}"
        )
    return (length + 2 * padding - span) // stride + 1


# In one step


def windows1d(
    x: Float[Tensor, "B C T"],
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    padding_mode: str = "zeros",
) -> Float[Tensor, "B C T_out K"]:
    """All that a kernel sees, window by window: a view of the (padded) input, not a copy.

    Args:
        x: ``(B, C, T)``.
        kernel_size: K, numbers in a window.
        stride: places from one window to the next.
        padding: places added at each end.
        dilation: places between two numbers of a window.
        padding_mode: ``"zeros"``, or ``"circular"``: the sequence closed to a ring.

    Returns:
        ``(B, C, T_out, K)``; entry ``[b, c, t, k]`` is the input's place
        ``t*stride + k*dilation - padding``.

    Raises:
        TypeError: if a number is not an int.
        ValueError: if one is too small, the kernel does not fit the padded input,
            ``padding_mode`` is unknown, or circular padding is wider than the input.

    Example:
        >>> import torch
        >>> from tutorial_lib.convolution import windows1d
        >>> windows1d(torch.tensor([[[1.0, 2.0, 3.0, 4.0]]]), kernel_size=3)
        tensor([[[[1., 2., 3.],
                  [2., 3., 4.]]]])
    """
    _check.axes("x", x, "B C T")
    out_length(x.shape[2], kernel_size, stride, padding, dilation)
    x = _pad(x, (padding, padding), padding_mode)  # (B, C, T + 2P)
    span = dilation * (kernel_size - 1) + 1
    return x.unfold(2, span, stride)[..., ::dilation]  # (B, C, T_out, K)


def windows2d(
    x: Float[Tensor, "B C H W"],
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    padding_mode: str = "zeros",
) -> Float[Tensor, "B C H_out W_out K_h K_w"]:
    """:func:`windows1d` along both axes of an image.

    Args:
        x: ``(B, C, H, W)``.
        kernel_size: rows and columns of a window; here and below, one int stands for both.
        stride: rows and columns from one window to the next.
        padding: rows and columns added at each edge.
        dilation: distance between two numbers of a window.
        padding_mode: ``"zeros"`` or ``"circular"``.

    Returns:
        ``(B, C, H_out, W_out, K_h, K_w)``.

    Raises:
        TypeError: if a number is not an int.
        ValueError: as :func:`windows1d`, for either axis.

    Example:
        >>> import torch
        >>> from tutorial_lib.convolution import windows2d
        >>> windows2d(torch.zeros(2, 3, 8, 9), kernel_size=3).shape
        torch.Size([2, 3, 6, 7, 3, 3])
    """
    _check.axes("x", x, "B C H W")
    K, S = _pair("kernel_size", kernel_size), _pair("stride", stride)
    P, D = _pair("padding", padding), _pair("dilation", dilation)
    for axis in (0, 1):
        out_length(x.shape[2 + axis], K[axis], S[axis], P[axis], D[axis])
    x = _pad(x, (P[1], P[1], P[0], P[0]), padding_mode)  # (B, C, H + 2P, W + 2P)
    x = x.unfold(2, D[0] * (K[0] - 1) + 1, S[0])  # (B, C, H_out, W + 2P, span_h)
    x = x.unfold(3, D[1] * (K[1] - 1) + 1, S[1])  # (B, C, H_out, W_out, span_h, span_w)
    return x[..., :: D[0], :: D[1]]  # (B, C, H_out, W_out, K_h, K_w)


def conv1d(
    x: Float[Tensor, "B C_in T"],
    weight: Float[Tensor, "C_out C_in K"],
    bias: Float[Tensor, "C_out"] | None = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    padding_mode: str = "zeros",
) -> Float[Tensor, "B C_out T_out"]:
    """Convolution in one step: cut the input into windows, weigh each with the same kernel.

    ``y[b, o, t] = bias[o] + sum over c, k of weight[o, c, k] * x[b, c, t*stride + k*dilation]``,
    with x padded. The kernel is not turned round: this is cross-correlation, as everywhere in
    deep learning. Equal to ``torch.nn.functional.conv1d``, gradients included.

    Args:
        x: ``(B, C_in, T)``.
        weight: ``(C_out, C_in, K)``.
        bias: ``(C_out,)``.
        stride: places between two outputs.
        padding: places added at each end.
        dilation: places between two taps of the kernel.
        padding_mode: ``"zeros"``, or ``"circular"``: the sequence closed to a ring.

    Returns:
        ``(B, C_out, T_out)``, with ``T_out`` as :func:`out_length` says.

    Raises:
        TypeError: if a number is not an int, or the tensors' dtypes differ.
        ValueError: if channels do not fit, a number is too small, the kernel does not fit the
            padded input, ``padding_mode`` is unknown, or circular padding is wider than the input.

    Example:
        >>> import torch
        >>> from tutorial_lib.convolution import conv1d
        >>> x, difference = torch.tensor([[[1.0, 4.0, 9.0, 16.0]]]), torch.tensor([[[-1.0, 1.0]]])
        >>> conv1d(x, difference)
        tensor([[[3., 5., 7.]]])
    """
    _check_operands(x, weight, bias, "B C_in T", "C_out C_in K")
    windows = windows1d(x, weight.shape[2], stride, padding, dilation, padding_mode)
    y = torch.einsum("bctk,ock->bot", windows, weight)  # (B, C_out, T_out)
    return y if bias is None else y + bias.to(y.dtype)[:, None]


def conv2d(
    x: Float[Tensor, "B C_in H W"],
    weight: Float[Tensor, "C_out C_in K_h K_w"],
    bias: Float[Tensor, "C_out"] | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    padding_mode: str = "zeros",
) -> Float[Tensor, "B C_out H_out W_out"]:
    """:func:`conv1d` along both axes of an image; also a cross-correlation.

    Equal to ``torch.nn.functional.conv2d``, gradients included.

    Args:
        x: ``(B, C_in, H, W)``.
        weight: ``(C_out, C_in, K_h, K_w)``.
        bias: ``(C_out,)``.
        stride: rows and columns between two outputs; here and below, one int stands for both.
        padding: rows and columns added at each edge.
        dilation: distance between two taps of the kernel.
        padding_mode: ``"zeros"``, or ``"circular"``: both axes closed to rings.

    Returns:
        ``(B, C_out, H_out, W_out)``.

    Raises:
        TypeError: if a number is not an int, or the tensors' dtypes differ.
        ValueError: as :func:`conv1d`, for either axis.

    Example:
        >>> import torch
        >>> from tutorial_lib.convolution import conv2d
        >>> conv2d(torch.ones(1, 1, 3, 4), torch.ones(1, 1, 2, 2))
        tensor([[[[4., 4., 4.],
                  [4., 4., 4.]]]])
    """
    _check_operands(x, weight, bias, "B C_in H W", "C_out C_in K_h K_w")
    K_h, K_w = weight.shape[2:]
    windows = windows2d(x, (K_h, K_w), stride, padding, dilation, padding_mode)
    y = torch.einsum("bchwij,ocij->bohw", windows, weight)  # (B, C_out, H_out, W_out)
    return y if bias is None else y + bias.to(y.dtype)[:, None, None]


def toeplitz(
    weight: Float[Tensor, "C_out C_in K"] | Float[Tensor, "K"],
    length: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    padding_mode: str = "zeros",
) -> Float[Tensor, "rows columns"]:
    """The dense layer's matrix that does what a convolution does.

    Most of its entries are 0 (locality), and each diagonal repeats one number (sharing).
    ``toeplitz(weight, T) @ x.flatten()`` is ``conv1d(x, weight).flatten()`` for one example x.

    Args:
        weight: ``(C_out, C_in, K)``, or ``(K,)`` for one channel in and out.
        length: T, the input's length.
        stride: as in :func:`conv1d`; 1 for constant diagonals.
        padding: as in :func:`conv1d`.
        dilation: as in :func:`conv1d`.
        padding_mode: as in :func:`conv1d`; ``"circular"`` gives a circulant matrix.

    Returns:
        ``(C_out * T_out, C_in * T)``; gradients flow back to ``weight``.

    Raises:
        TypeError: if a number is not an int, or ``weight`` is not a tensor.
        ValueError: as :func:`conv1d`.

    Example:
        >>> import torch
        >>> from tutorial_lib.convolution import toeplitz
        >>> toeplitz(torch.tensor([1.0, 2.0, 3.0]), length=5)
        tensor([[1., 2., 3., 0., 0.],
                [0., 1., 2., 3., 0.],
                [0., 0., 1., 2., 3.]])
    """
    if isinstance(weight, Tensor) and weight.dim() == 1:
        weight = weight[None, None]
    _check.axes("weight", weight, "C_out C_in K")
    C_out, C_in, K = weight.shape
    T_out = out_length(length, K, stride, padding, dilation)
    _check_padding(padding_mode, padding, length)
    t, k, s = (torch.arange(n, device=weight.device) for n in (T_out, K, length))
    place = t[:, None] * stride + k * dilation - padding  # (T_out, K): where tap k of output t lies
    if padding_mode == "circular":
        place = place % length
    meets = (place[..., None] == s).to(weight.dtype)  # (T_out, K, T)
    matrix = torch.einsum("ock,tks->otcs", weight, meets)  # (C_out, T_out, C_in, T)
    return matrix.reshape(C_out * T_out, C_in * length)


# Pooling


def max_pool1d(
    x: Float[Tensor, "B C T"], kernel_size: int, stride: int | None = None
) -> Float[Tensor, "B C T_out"]:
    """The largest number of each window.

    Args:
        x: ``(B, C, T)``.
        kernel_size: numbers in a window.
        stride: places between two windows; by default they lie side by side.

    Returns:
        ``(B, C, T_out)``. Numbers that do not fill a last window are left out.

    Raises:
        TypeError: if a number is not an int.
        ValueError: if one is below 1, or the window is longer than the input.

    Example:
        >>> import torch
        >>> from tutorial_lib.convolution import max_pool1d
        >>> max_pool1d(torch.tensor([[[1.0, 5.0, 2.0, 3.0, 9.0]]]), kernel_size=2)
        tensor([[[5., 3.]]])
    """
    windows = windows1d(x, kernel_size, kernel_size if stride is None else stride)
    return windows.max(-1).values  # max, not amax: of equal numbers one gets the gradient


def avg_pool1d(
    x: Float[Tensor, "B C T"], kernel_size: int, stride: int | None = None
) -> Float[Tensor, "B C T_out"]:
    """The mean of each window.

    Args:
        x: ``(B, C, T)``.
        kernel_size: numbers in a window.
        stride: places between two windows; by default they lie side by side.

    Returns:
        ``(B, C, T_out)``.

    Raises:
        TypeError: if a number is not an int.
        ValueError: if one is below 1, or the window is longer than the input.

    Example:
        >>> import torch
        >>> from tutorial_lib.convolution import avg_pool1d
        >>> avg_pool1d(torch.tensor([[[1.0, 5.0, 2.0, 3.0]]]), kernel_size=2)
        tensor([[[3.0000, 2.5000]]])
    """
    return windows1d(x, kernel_size, kernel_size if stride is None else stride).mean(-1)


def max_pool2d(
    x: Float[Tensor, "B C H W"],
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int] | None = None,
) -> Float[Tensor, "B C H_out W_out"]:
    """The largest number of each window of an image.

    Args:
        x: ``(B, C, H, W)``.
        kernel_size: rows and columns of a window, one int for both.
        stride: rows and columns between two windows; by default they lie side by side.

    Returns:
        ``(B, C, H_out, W_out)``.

    Raises:
        TypeError: if a number is not an int.
        ValueError: if one is below 1, or the window is larger than the image.

    Example:
        >>> import torch
        >>> from tutorial_lib.convolution import max_pool2d
        >>> max_pool2d(torch.arange(8.0).view(1, 1, 2, 4), kernel_size=2)
        tensor([[[[5., 7.]]]])
    """
    windows = windows2d(x, kernel_size, kernel_size if stride is None else stride)
    return windows.flatten(-2).max(-1).values  # (B, C, H_out, W_out)


def avg_pool2d(
    x: Float[Tensor, "B C H W"],
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int] | None = None,
) -> Float[Tensor, "B C H_out W_out"]:
    """The mean of each window of an image.

    Args:
        x: ``(B, C, H, W)``.
        kernel_size: rows and columns of a window, one int for both.
        stride: rows and columns between two windows; by default they lie side by side.

    Returns:
        ``(B, C, H_out, W_out)``.

    Raises:
        TypeError: if a number is not an int.
        ValueError: if one is below 1, or the window is larger than the image.

    Example:
        >>> import torch
        >>> from tutorial_lib.convolution import avg_pool2d
        >>> avg_pool2d(torch.arange(8.0).view(1, 1, 2, 4), kernel_size=2)
        tensor([[[[2.5000, 4.5000]]]])
    """
    return windows2d(x, kernel_size, kernel_size if stride is None else stride).mean((-2, -1))


# Receptive field


def receptive_field(layers: Iterable[tuple[int, int, int]]) -> int:
    """How many input places one output can see, by formula.

    Each layer adds ``(kernel - 1) * dilation`` steps. A step is one place of the input at first,
    and ``stride`` times as long after each strided layer.

    Args:
        layers: ``(kernel, stride, dilation)`` per layer, from the input up. Pooling counts too.

    Returns:
        The distance from the first place seen to the last, both included.

    Raises:
        TypeError: if a number is not an int.
        ValueError: if one is below 1.

    Source: Araujo, Norris and Sim, "Computing Receptive Fields of Convolutional Neural Networks",
    Distill, 2019.

    Example:
        >>> from tutorial_lib.convolution import receptive_field
        >>> receptive_field([(3, 1, 1), (3, 1, 2), (3, 1, 4)])
        15
    """
    field, step = 1, 1
    for kernel, stride, dilation in layers:
        for name, value in (("kernel", kernel), ("stride", stride), ("dilation", dilation)):
            _check.integer(name, value)
        field += (kernel - 1) * dilation * step
        step *= stride
    return field


def measured_receptive_field(
    module: nn.Module, length: int, channels: int = 1, channels_last: bool = False
) -> int:
    """How many input places the middle output can see, by gradients.

    A place is seen if the middle output's gradient there is not 0 for one of 64 random inputs.
    What is measured is the structure, not the training: it works on a copy in which inputs and
    parameters have lost their sign, so that no ReLU blocks a path and no two paths cancel.

    Args:
        module: maps ``(B, C, T)`` to ``(B, C', T')``.
        length: T, the length to try. Where the field is longer, what lies in the input counts.
        channels: C.
        channels_last: the module maps ``(B, T, C)`` to ``(B, T', C')``, as sequence layers do.

    Returns:
        The distance from the first place seen to the last, both included; 0 if none is seen.

    Raises:
        TypeError: if ``module`` is not a module, or a number not an int.
        ValueError: if a number is below 1, or the module's output has not three axes.

    Example:
        >>> from tutorial_lib.convolution import Conv1d, measured_receptive_field
        >>> measured_receptive_field(Conv1d(1, 1, kernel_size=5, dilation=2), length=21)
        9
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    _check.integer("length", length)
    _check.integer("channels", channels)
    module = _without_signs(module)
    probes = torch.Generator().manual_seed(0)
    x = torch.rand(64, length, channels, generator=probes, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        y = module(x if channels_last else x.transpose(1, 2))  # (64, C', T')
        if y.dim() != 3:
            raise ValueError(f"module must return three axes, got shape {tuple(y.shape)}")
        y = y if channels_last else y.transpose(1, 2)  # (64, T', C')
        (gradient,) = torch.autograd.grad(y[:, y.shape[1] // 2].sum(), x)  # (64, T, C)
    seen = gradient.ne(0).any(2).any(0).nonzero()  # (places, 1)
    return int(seen.max() - seen.min()) + 1 if len(seen) else 0


def _without_signs(module: nn.Module) -> nn.Module:
    """A copy in float64 on the CPU, in evaluation mode, with no negative parameter."""
    module = copy.deepcopy(module).cpu().double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.abs_()
    return module


# Layers


class Conv1d(nn.Module):
    """A convolution along a sequence: the same small kernel, laid over each place.

    Equal to ``nn.Conv1d``: names of arguments and weights, start, and result (without ``groups``).
    It computes what :func:`conv1d` writes out, by PyTorch's fused function.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        kernel_size: K.
        stride: places between two outputs.
        padding: places added at each end, or ``"same"``: as many as keep the length, for an odd
            kernel and stride 1.
        dilation: places between two taps of the kernel.
        bias: whether each output channel has a bias.
        padding_mode: ``"zeros"``, or ``"circular"``: the sequence closed to a ring.

    Attributes:
        weight: ``(C_out, C_in, K)``; starts as
            :func:`~tutorial_lib.dense.fan_in_uniform` of ``C_in * K``.
        bias: ``(C_out,)`` or None; starts likewise.

    Raises:
        TypeError: if a number is not an int, or the input's dtype is not the weight's.
        ValueError: if a number is too small, ``padding_mode`` is unknown, ``"same"`` meets an even
            kernel or a stride; or the input has other channels, is shorter than the kernel, or is
            shorter than its circular padding.

    Source: LeCun et al., "Backpropagation Applied to Handwritten Zip Code Recognition", 1989.

    Example:
        >>> import torch
        >>> from tutorial_lib.convolution import Conv1d
        >>> Conv1d(3, 5, kernel_size=3, padding="same")(torch.zeros(2, 3, 7)).shape
        torch.Size([2, 5, 7])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int | str = 0,
        dilation: int = 1,
        *,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        super().__init__()
        _check_kernel(
            in_channels, out_channels, (kernel_size,), (stride,), (dilation,), padding_mode
        )
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride, self.dilation = kernel_size, stride, dilation
        self.padding = _padding(padding, kernel_size, stride, dilation)
        self.padding_mode = padding_mode
        fan_in = in_channels * kernel_size
        self.weight = fan_in_uniform((out_channels, in_channels, kernel_size), fan_in)
        self.bias = fan_in_uniform((out_channels,), fan_in) if bias else None

    def forward(self, x: Float[Tensor, "B C_in T"]) -> Float[Tensor, "B C_out T_out"]:
        """Apply the kernel at each place: ``(B, C_in, T)`` to ``(B, C_out, T_out)``."""
        _check_operands(x, self.weight, self.bias, "B C_in T", "C_out C_in K")
        out_length(x.shape[2], self.kernel_size, self.stride, self.padding, self.dilation)
        padding = self.padding
        if self.padding_mode == "circular":
            x, padding = _pad(x, (padding, padding), "circular"), 0  # (B, C_in, T + 2P)
        return F.conv1d(x, self.weight, self.bias, self.stride, padding, self.dilation)

    def extra_repr(self) -> str:
        """What ``print`` shows in the brackets."""
        return _describe(self)


class Conv2d(nn.Module):
    """A convolution over an image: the same small kernel, laid over each place.

    Equal to ``nn.Conv2d``: names of arguments and weights, start, and result (without ``groups``).
    It computes what :func:`conv2d` writes out, by PyTorch's fused function.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        kernel_size: rows and columns of the kernel; here and below, one int stands for both.
        stride: rows and columns between two outputs.
        padding: rows and columns added at each edge, or ``"same"``: as many as keep the size, for
            an odd kernel and stride 1.
        dilation: distance between two taps of the kernel.
        bias: whether each output channel has a bias.
        padding_mode: ``"zeros"``, or ``"circular"``: both axes closed to rings.

    Attributes:
        weight: ``(C_out, C_in, K_h, K_w)``; starts as
            :func:`~tutorial_lib.dense.fan_in_uniform` of ``C_in * K_h * K_w``.
        bias: ``(C_out,)`` or None; starts likewise.

    Raises:
        TypeError: if a number is not an int, or the input's dtype is not the weight's.
        ValueError: as :class:`Conv1d`, for either axis.

    Source: LeCun et al., "Backpropagation Applied to Handwritten Zip Code Recognition", 1989.

    Example:
        >>> import torch
        >>> from tutorial_lib.convolution import Conv2d
        >>> Conv2d(3, 5, kernel_size=3, stride=2, padding=1)(torch.zeros(2, 3, 8, 11)).shape
        torch.Size([2, 5, 4, 6])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | str = 0,
        dilation: int | tuple[int, int] = 1,
        *,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        super().__init__()
        K, S, D = (
            _pair("kernel_size", kernel_size),
            _pair("stride", stride),
            _pair("dilation", dilation),
        )
        _check_kernel(in_channels, out_channels, K, S, D, padding_mode)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride, self.dilation = K, S, D
        self.padding, self.padding_mode = _padding2d(padding, K, S, D), padding_mode
        fan_in = in_channels * K[0] * K[1]
        self.weight = fan_in_uniform((out_channels, in_channels, *K), fan_in)
        self.bias = fan_in_uniform((out_channels,), fan_in) if bias else None

    def forward(self, x: Float[Tensor, "B C_in H W"]) -> Float[Tensor, "B C_out H_out W_out"]:
        """Apply the kernel at each place: ``(B, C_in, H, W)`` to ``(B, C_out, H_out, W_out)``."""
        _check_operands(x, self.weight, self.bias, "B C_in H W", "C_out C_in K_h K_w")
        geometry = zip(self.kernel_size, self.stride, self.padding, self.dilation, strict=True)
        for size, numbers in zip(x.shape[2:], geometry, strict=True):
            out_length(size, *numbers)
        p_h, p_w = self.padding
        if self.padding_mode == "circular":
            x, p_h, p_w = _pad(x, (p_w, p_w, p_h, p_h), "circular"), 0, 0
        return F.conv2d(x, self.weight, self.bias, self.stride, (p_h, p_w), self.dilation)

    def extra_repr(self) -> str:
        """What ``print`` shows in the brackets."""
        return _describe(self)


class LocallyConnected1d(nn.Module):
    """Local but not shared: a kernel of its own for each output place.

    A convolution without the sharing; with equal kernels everywhere it is :class:`Conv1d`.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        length: T, the one length that this layer can read.
        kernel_size: K.
        stride: places between two outputs.
        padding: places added at each end, or ``"same"`` as in :class:`Conv1d`.
        dilation: places between two taps of the kernel.
        bias: whether each output number has a bias.
        padding_mode: ``"zeros"`` or ``"circular"``.

    Attributes:
        weight: ``(T_out, C_out, C_in, K)``; starts as
            :func:`~tutorial_lib.dense.fan_in_uniform` of ``C_in * K``.
        bias: ``(C_out, T_out)`` or None; starts likewise.

    Raises:
        TypeError: if a number is not an int, or the input's dtype is not the weight's.
        ValueError: as :class:`Conv1d`, or the input's length is not ``length``.

    Source: LeCun, "Generalization and Network Design Strategies", 1989.

    Example:
        >>> import torch
        >>> from tutorial_lib.convolution import LocallyConnected1d
        >>> LocallyConnected1d(3, 5, length=7, kernel_size=3)(torch.zeros(2, 3, 7)).shape
        torch.Size([2, 5, 5])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        length: int,
        kernel_size: int,
        stride: int = 1,
        padding: int | str = 0,
        dilation: int = 1,
        *,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        super().__init__()
        _check_kernel(
            in_channels, out_channels, (kernel_size,), (stride,), (dilation,), padding_mode
        )
        self.in_channels, self.out_channels, self.length = in_channels, out_channels, length
        self.kernel_size, self.stride, self.dilation = kernel_size, stride, dilation
        self.padding = _padding(padding, kernel_size, stride, dilation)
        self.padding_mode = padding_mode
        T_out = out_length(length, kernel_size, stride, self.padding, dilation)
        _check_padding(padding_mode, self.padding, length)
        fan_in = in_channels * kernel_size
        self.weight = fan_in_uniform((T_out, out_channels, in_channels, kernel_size), fan_in)
        self.bias = fan_in_uniform((out_channels, T_out), fan_in) if bias else None

    def forward(self, x: Float[Tensor, "B C_in T"]) -> Float[Tensor, "B C_out T_out"]:
        """Apply each place's own kernel: ``(B, C_in, T)`` to ``(B, C_out, T_out)``."""
        _check_fixed(x, self.weight, "B C_in T", self.in_channels, (self.length,))
        windows = windows1d(
            x, self.kernel_size, self.stride, self.padding, self.dilation, self.padding_mode
        )  # (B, C_in, T_out, K)
        y = torch.einsum("bctk,tock->bot", windows, self.weight)  # (B, C_out, T_out)
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def extra_repr(self) -> str:
        """What ``print`` shows in the brackets."""
        return f"{_describe(self)}, length={self.length}"


class LocallyConnected2d(nn.Module):
    """Local but not shared, over an image: a kernel of its own for each output place.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        size: ``(H, W)``, the one size that this layer can read.
        kernel_size: rows and columns of a kernel; here and below, one int stands for both.
        stride: rows and columns between two outputs.
        padding: rows and columns added at each edge, or ``"same"`` as in :class:`Conv2d`.
        dilation: distance between two taps of the kernel.
        bias: whether each output number has a bias.
        padding_mode: ``"zeros"`` or ``"circular"``.

    Attributes:
        weight: ``(H_out, W_out, C_out, C_in, K_h, K_w)``; starts as
            :func:`~tutorial_lib.dense.fan_in_uniform` of ``C_in * K_h * K_w``.
        bias: ``(C_out, H_out, W_out)`` or None; starts likewise.

    Raises:
        TypeError: if a number is not an int, or the input's dtype is not the weight's.
        ValueError: as :class:`Conv2d`, or the input's size is not ``size``.

    Source: LeCun, "Generalization and Network Design Strategies", 1989.

    Example:
        >>> import torch
        >>> from tutorial_lib.convolution import LocallyConnected2d
        >>> LocallyConnected2d(3, 5, size=(8, 9), kernel_size=3)(torch.zeros(2, 3, 8, 9)).shape
        torch.Size([2, 5, 6, 7])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        size: tuple[int, int],
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | str = 0,
        dilation: int | tuple[int, int] = 1,
        *,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        super().__init__()
        K, S, D = (
            _pair("kernel_size", kernel_size),
            _pair("stride", stride),
            _pair("dilation", dilation),
        )
        _check_kernel(in_channels, out_channels, K, S, D, padding_mode)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride, self.dilation = K, S, D
        self.padding, self.padding_mode = _padding2d(padding, K, S, D), padding_mode
        self.size = _pair("size", size)
        _check_padding(padding_mode, self.padding, self.size)
        P = self.padding
        out = [out_length(self.size[i], K[i], S[i], P[i], D[i]) for i in (0, 1)]
        fan_in = in_channels * K[0] * K[1]
        self.weight = fan_in_uniform((*out, out_channels, in_channels, *K), fan_in)
        self.bias = fan_in_uniform((out_channels, *out), fan_in) if bias else None

    def forward(self, x: Float[Tensor, "B C_in H W"]) -> Float[Tensor, "B C_out H_out W_out"]:
        """Apply each place's own kernel: ``(B, C_in, H, W)`` to ``(B, C_out, H_out, W_out)``."""
        _check_fixed(x, self.weight, "B C_in H W", self.in_channels, self.size)
        windows = windows2d(
            x, self.kernel_size, self.stride, self.padding, self.dilation, self.padding_mode
        )  # (B, C_in, H_out, W_out, K_h, K_w)
        y = torch.einsum("bchwij,hwocij->bohw", windows, self.weight)  # (B, C_out, H_out, W_out)
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def extra_repr(self) -> str:
        """What ``print`` shows in the brackets."""
        return f"{_describe(self)}, size={self.size}"


class FullWidthConv1d(nn.Module):
    """Shared but not local: one kernel as long as the input, laid over each place of a ring.

    Tap ``(T - 1) // 2`` meets the output's own place; equal to a circular ``nn.Conv1d`` with
    ``kernel_size=T, padding="same"``, for odd and even T.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        length: T, length of the kernel and the one length that this layer can read.
        bias: whether each output channel has a bias.

    Attributes:
        weight: ``(C_out, C_in, T)``; starts as
            :func:`~tutorial_lib.dense.fan_in_uniform` of ``C_in * T``.
        bias: ``(C_out,)`` or None; starts likewise.

    Raises:
        TypeError: if a number is not an int, or the input's dtype is not the weight's.
        ValueError: if a number is below 1, or the input has other channels or another length.

    Example:
        >>> import torch
        >>> from tutorial_lib.convolution import FullWidthConv1d
        >>> FullWidthConv1d(3, 5, length=8)(torch.zeros(2, 3, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(self, in_channels: int, out_channels: int, length: int, bias: bool = True) -> None:
        super().__init__()
        _check.integer("in_channels", in_channels)
        _check.integer("out_channels", out_channels)
        _check.integer("length", length)
        self.in_channels, self.out_channels, self.length = in_channels, out_channels, length
        fan_in = in_channels * length
        self.weight = fan_in_uniform((out_channels, in_channels, length), fan_in)
        self.bias = fan_in_uniform((out_channels,), fan_in) if bias else None

    def forward(self, x: Float[Tensor, "B C_in T"]) -> Float[Tensor, "B C_out T"]:
        """Apply the kernel at each place of the ring: ``(B, C_in, T)`` to ``(B, C_out, T)``."""
        _check_fixed(x, self.weight, "B C_in T", self.in_channels, (self.length,))
        before = (self.length - 1) // 2
        x = _pad(x, (before, self.length - 1 - before), "circular")  # (B, C_in, 2T - 1)
        return F.conv1d(x, self.weight, self.bias)  # (B, C_out, T)

    def extra_repr(self) -> str:
        """What ``print`` shows in the brackets."""
        return f"{self.in_channels}, {self.out_channels}, length={self.length}"


class ConvolutionLayer(nn.Module):
    """Convolution as a sequence layer: each position looks at a window, everywhere the same.

    Args:
        d_model: D, the width of each position.
        kernel_size: K, positions that one position looks at; odd, unless ``causal``.
        causal: the window ends at the position itself, instead of lying round it.
        dilation: distance between two of those positions.

    Attributes:
        conv: the :class:`Conv1d` from D to D channels.

    Raises:
        TypeError: if a number is not an int, or the input's dtype is not the weight's.
        ValueError: if a number is below 1, the kernel is even and not causal, or the input is
            not ``(B, T, D)`` with this D.

    Source: van den Oord et al., "WaveNet: A Generative Model for Raw Audio", 2016, section 2.1
    (causal and dilated convolutions).

    Example:
        >>> import torch
        >>> from tutorial_lib.convolution import ConvolutionLayer
        >>> ConvolutionLayer(d_model=5, kernel_size=3, causal=True)(torch.zeros(2, 7, 5)).shape
        torch.Size([2, 7, 5])
    """

    def __init__(
        self, d_model: int, kernel_size: int, causal: bool = False, dilation: int = 1
    ) -> None:
        super().__init__()
        _check.integer("d_model", d_model)
        self.conv = Conv1d(d_model, d_model, kernel_size, dilation=dilation)
        if not causal:
            _padding("same", kernel_size, 1, dilation)  # raises where the window has no middle
        reach = dilation * (kernel_size - 1)
        self.before = reach if causal else reach // 2
        self.after = reach - self.before

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Mix each window: ``(B, T, D)`` to ``(B, T, D)``."""
        _check.axes("x", x, "B T D")
        _check.width("x", x, self.conv.in_channels)
        x = F.pad(x, (0, 0, self.before, self.after))  # (B, before + T + after, D)
        return self.conv(x.transpose(1, 2)).transpose(1, 2)  # (B, T, D)

    def extra_repr(self) -> str:
        """What ``print`` shows in the brackets."""
        return f"before={self.before}, after={self.after}"


# Networks


class CNN1d(nn.Module):
    """Convolutions and ReLUs, then pooling over all places, then one dense layer.

    Args:
        channels: output channels of each convolution.
        kernel_size: of each convolution; here and below, one int stands for all.
        num_classes: width of the output.
        in_channels: channels of the input.
        stride: of each convolution.
        padding: of each convolution; by default half the kernel, which keeps the length at
            stride 1 and asks for odd kernels.
        padding_mode: ``"zeros"`` or ``"circular"``.
        pooling: what the dense layer reads: the ``"max"`` or ``"mean"`` of each channel over all
            places, or ``"flatten"``: every channel at every place.
        length: T of the input; needed for ``"flatten"``, which is tied to it.

    Attributes:
        features: the convolutions and ReLUs, ``(B, C_in, T)`` to ``(B, C, T_out)``.
        head: the dense layer.

    Raises:
        TypeError: if a number is not an int, or the input's dtype is not the weights'.
        ValueError: if a list has not one entry per convolution, a number is too small, a kernel
            does not fit, an even kernel comes without ``padding``, a name is unknown, or
            ``"flatten"`` comes without ``length`` or meets another one.

    Example:
        >>> import torch
        >>> from tutorial_lib.convolution import CNN1d
        >>> net = CNN1d([16], kernel_size=7, num_classes=4)
        >>> net(torch.zeros(2, 64)).shape, sum(p.numel() for p in net.parameters())
        (torch.Size([2, 4]), 196)
    """

    def __init__(
        self,
        channels: Sequence[int],
        kernel_size: int | Sequence[int],
        num_classes: int,
        in_channels: int = 1,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | None = None,
        padding_mode: str = "zeros",
        pooling: str = "max",
        length: int | None = None,
    ) -> None:
        super().__init__()
        _check_network(channels, num_classes, pooling, length is not None, "length")
        plan = _plan(channels, kernel_size, in_channels, stride, padding)
        layers: list[nn.Module] = []
        places = length
        for C_in, C_out, K, S, P in plan:
            layers += [Conv1d(C_in, C_out, K, S, P, padding_mode=padding_mode), nn.ReLU()]
            if places is not None:
                _check_padding(padding_mode, P, places)
                places = out_length(places, K, S, P)
        self.pooling, self.length = pooling, length if pooling == "flatten" else None
        self.features = nn.Sequential(*layers)
        self.head = Linear(_pooled_width(channels[-1], pooling, places), num_classes)

    def forward(
        self, x: Float[Tensor, "B C_in T"] | Float[Tensor, "B T"]
    ) -> Float[Tensor, "B num_classes"]:
        """Classify: ``(B, C_in, T)``, or ``(B, T)`` for one channel, to ``(B, num_classes)``."""
        if isinstance(x, Tensor) and x.dim() == 2:
            x = x[:, None]
        _check.axes("x", x, "B C_in T")
        if self.length is not None and x.shape[2] != self.length:
            raise ValueError(f"x must have length {self.length}, got {x.shape[2]}")
        h = self.features(x)  # (B, C, T_out)
        return self.head(_pool(h, self.pooling))  # (B, num_classes)


class CNN2d(nn.Module):
    """:class:`CNN1d` for images.

    Args:
        channels: output channels of each convolution.
        kernel_size: of each convolution, square; here and below, one int stands for all.
        num_classes: width of the output.
        in_channels: channels of the input.
        stride: of each convolution, the same along both axes.
        padding: of each convolution; by default half the kernel, which keeps the size at stride 1
            and asks for odd kernels.
        padding_mode: ``"zeros"`` or ``"circular"``.
        pooling: what the dense layer reads: ``"max"``, ``"mean"`` or ``"flatten"``.
        size: ``(H, W)`` of the input; needed for ``"flatten"``, which is tied to it.

    Attributes:
        features: the convolutions and ReLUs, ``(B, C_in, H, W)`` to ``(B, C, H_out, W_out)``.
        head: the dense layer.

    Raises:
        TypeError: if a number is not an int, or the input's dtype is not the weights'.
        ValueError: as :class:`CNN1d`, for either axis.

    Example:
        >>> import torch
        >>> from tutorial_lib.convolution import CNN2d
        >>> net = CNN2d([16, 16, 32], kernel_size=3, num_classes=10, padding_mode="circular")
        >>> net(torch.zeros(2, 8, 9)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        channels: Sequence[int],
        kernel_size: int | Sequence[int],
        num_classes: int,
        in_channels: int = 1,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | None = None,
        padding_mode: str = "zeros",
        pooling: str = "max",
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        _check_network(channels, num_classes, pooling, size is not None, "size")
        plan = _plan(channels, kernel_size, in_channels, stride, padding)
        layers: list[nn.Module] = []
        places = None if size is None else _pair("size", size)
        self.pooling, self.size = pooling, places if pooling == "flatten" else None
        for C_in, C_out, K, S, P in plan:
            layers += [Conv2d(C_in, C_out, K, S, P, padding_mode=padding_mode), nn.ReLU()]
            if places is not None:
                _check_padding(padding_mode, P, places)
                places = (out_length(places[0], K, S, P), out_length(places[1], K, S, P))
        self.features = nn.Sequential(*layers)
        area = None if places is None else places[0] * places[1]
        self.head = Linear(_pooled_width(channels[-1], pooling, area), num_classes)

    def forward(
        self, x: Float[Tensor, "B C_in H W"] | Float[Tensor, "B H W"]
    ) -> Float[Tensor, "B num_classes"]:
        """Classify: ``(B, C_in, H, W)``, or ``(B, H, W)`` for one channel."""
        if isinstance(x, Tensor) and x.dim() == 3:
            x = x[:, None]
        _check.axes("x", x, "B C_in H W")
        if self.size is not None and tuple(x.shape[2:]) != self.size:
            raise ValueError(f"x must have size {self.size}, got {tuple(x.shape[2:])}")
        h = self.features(x)  # (B, C, H_out, W_out)
        return self.head(_pool(h, self.pooling))  # (B, num_classes)


_POOL: dict[str, Callable[[Tensor], Tensor]] = {
    "max": lambda h: h.flatten(2).amax(-1),
    "mean": lambda h: h.flatten(2).mean(-1),
    "flatten": lambda h: h.flatten(1),
}


def _pool(h: Float[Tensor, "B C *places"], pooling: str) -> Float[Tensor, "B width"]:
    return _POOL[pooling](h)


def _pooled_width(channels: int, pooling: str, places: int | None) -> int:
    return channels * places if pooling == "flatten" and places is not None else channels


def _plan(
    channels: Sequence[int],
    kernel_size: int | Sequence[int],
    in_channels: int,
    stride: int | Sequence[int],
    padding: int | Sequence[int] | None,
) -> list[tuple[int, int, int, int, int]]:
    """(C_in, C_out, kernel, stride, padding) of each convolution."""
    kernels = _each("kernel_size", kernel_size, len(channels))
    strides = _each("stride", stride, len(channels))
    if padding is None:
        padding = [_padding("same", kernel, 1, 1) for kernel in kernels]
    paddings = _each("padding", padding, len(channels))
    inputs = [in_channels, *channels[:-1]]
    return list(zip(inputs, channels, kernels, strides, paddings, strict=True))


def _each(name: str, value: int | Sequence[int], count: int) -> list[int]:
    if not isinstance(value, Sequence):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"{name} must have one entry per convolution ({count}), got {list(value)}")
    return list(value)


# Padding and checks


def _pad(x: Tensor, widths: tuple[int, ...], padding_mode: str) -> Tensor:
    """Widen the last axes: (left, right) of the last, then (top, bottom) of the one before."""
    for axis in range(len(widths) // 2):
        _check_padding(padding_mode, max(widths[2 * axis : 2 * axis + 2]), x.shape[-1 - axis])
    if not any(widths):
        return x
    return F.pad(x, widths, mode="constant" if padding_mode == "zeros" else "circular")


def _pair(name: str, value: object) -> tuple[int, int]:
    """One int for both axes, or a pair of them."""
    first, second = value if isinstance(value, (tuple, list)) and len(value) == 2 else (value,) * 2
    if isinstance(first, bool) or not isinstance(first, int):
        raise TypeError(f"{name} must be an int or a pair of them, got {value!r}")
    if isinstance(second, bool) or not isinstance(second, int):
        raise TypeError(f"{name} must be an int or a pair of them, got {value!r}")
    return first, second


def _padding(padding: int | str, kernel_size: int, stride: int, dilation: int) -> int:
    """The number of places that ``padding`` stands for."""
    if not isinstance(padding, str):
        _check.integer("padding", padding, at_least=0)
        return padding
    _check.one_of("padding", padding, ("same",))
    _check.integer("kernel_size", kernel_size)
    if kernel_size % 2 == 0:
        raise ValueError(
            "kernel_size must be odd where padding keeps the length, or padding be a number: "
            f"a window of kernel_size={kernel_size} has no middle"
        )
    if stride != 1:
        raise ValueError(f"stride must be 1 with padding='same', got {stride}")
    return dilation * (kernel_size - 1) // 2


def _padding2d(
    padding: int | tuple[int, int] | str,
    kernel_size: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
) -> tuple[int, int]:
    first, second = (padding,) * 2 if isinstance(padding, str) else _pair("padding", padding)
    return (
        _padding(first, kernel_size[0], stride[0], dilation[0]),
        _padding(second, kernel_size[1], stride[1], dilation[1]),
    )


def _check_padding(padding_mode: str, padding: object, size: object) -> None:
    _check.one_of("padding_mode", padding_mode, PADDING_MODES)
    for wide, places in zip(_pair("padding", padding), _pair("size", size), strict=True):
        if padding_mode == "circular" and wide > places:
            raise ValueError(
                f"padding must be at most the input's size where it is circular, "
                f"got padding={wide} for {places} places"
            )


def _check_channels(channels: int, weight: Sequence[int], bias: Sequence[int] | None) -> None:
    if channels != weight[1]:
        raise ValueError(
            f"x must have the {weight[1]} channels of weight {tuple(weight)}, got {channels}"
        )
    if bias is not None and tuple(bias) != (weight[0],):
        raise ValueError(f"bias must have shape ({weight[0]},), got {tuple(bias)}")


def _check_operands(
    x: Tensor, weight: Tensor, bias: Tensor | None, layout: str, weight_layout: str
) -> None:
    _check.axes("x", x, layout)
    _check.axes("weight", weight, weight_layout)
    _check.same_dtype("x", x, "weight", weight)
    _check_channels(x.shape[1], weight.shape, None if bias is None else bias.shape)


def _check_fixed(
    x: Tensor, weight: Tensor, layout: str, channels: int, size: tuple[int, ...]
) -> None:
    _check.axes("x", x, layout)
    _check.same_dtype("x", x, "weight", weight)
    if tuple(x.shape[1:]) != (channels, *size):
        wanted = ", ".join(map(str, ("B", channels, *size)))
        raise ValueError(f"x must have shape ({wanted}), got {tuple(x.shape)}")


def _check_kernel(
    in_channels: int,
    out_channels: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    padding_mode: str,
) -> None:
    _check.integer("in_channels", in_channels)
    _check.integer("out_channels", out_channels)
    named = {"kernel_size": kernel_size, "stride": stride, "dilation": dilation}
    for name, numbers in named.items():
        for number in numbers:
            _check.integer(name, number)
    _check.one_of("padding_mode", padding_mode, PADDING_MODES)


def _check_network(
    channels: Sequence[int], num_classes: int, pooling: str, sized: bool, size_name: str
) -> None:
    if len(channels) == 0:
        raise ValueError("channels must name at least one convolution, got none")
    _check.integer("num_classes", num_classes)
    _check.one_of("pooling", pooling, POOLING)
    if pooling == "flatten" and not sized:
        raise ValueError(f"{size_name} must be given with pooling='flatten', got None")


def _describe(layer: Conv1d | Conv2d | LocallyConnected1d | LocallyConnected2d) -> str:
    return (
        f"{layer.in_channels}, {layer.out_channels}, kernel_size={layer.kernel_size}, "
        f"stride={layer.stride}, padding={layer.padding}, dilation={layer.dilation}, "
        f"bias={layer.bias is not None}, padding_mode={layer.padding_mode!r}"
    )
