"""Writes a BERT for question answering as an ONNX graph.

The inputs are input_ids, attention_mask and token_type_ids, int64 [B, T] with
any B and T. The outputs are start_logits and end_logits, float32 [B, T].

In float32 and float16 the graph has only standard operators and runs
everywhere. In int8 it uses operators of ONNX Runtime for the CPU
(DynamicQuantizeMatMul). Every matrix is int8 with a scale for each column.
Activations are quantized at run time with one scale for the whole batch.
Products are summed in int32.

Embeddings, norms, softmax and the last layer take little time, so they stay in
float32. Named linear layers can also stay in float32. This is useful if a few
activations are much larger than all others, because one scale then leaves few
distinct values for the others.
"""

import os
import re

import numpy as np
import onnx
from onnx import helper
from onnx import numpy_helper

from harness.bert import checkpoint as checkpoint_lib
from saxml_ext.common import files

FLOAT32 = 'float32'
FLOAT16 = 'float16'
INT8 = 'int8'
PRECISIONS = (FLOAT32, FLOAT16, INT8)

_OPSET = 17
_IR_VERSION = 8
# The domain of ONNX Runtime's own operators.
_CONTRIB = 'com.microsoft'

# This value hides padding from attention: its exponential is 0 in float32.
_HIDDEN = -10000.0


def build(
  made: checkpoint_lib.Checkpoint, precision: str, float32_layers: str = ''
) -> onnx.ModelProto:
  """Builds the graph of a BERT.

  Args:
    made: The weights.
    precision: The precision, one of PRECISIONS.
    float32_layers: A regular expression for the names of linear layers that
      stay in float32 in an int8 graph, such as "layer.3.output.dense". Query,
      key and value have one name, "attention.self". Empty: no layer.

  Raises:
    ValueError: `float32_layers` is not a regular expression, or no layer
      matches.
  """
  try:
    re.compile(float32_layers)
  except re.error as error:
    raise ValueError(
      f'{float32_layers!r} is not a regular expression: {error}'
    ) from error
  if precision == INT8:
    return _Int8Graph(made, float32_layers).build()
  return _Graph(made, precision).build()


def write(
  made: checkpoint_lib.Checkpoint,
  precision: str,
  path: str,
  float32_layers: str = '',
) -> None:
  """Writes an ONNX file atomically; see `build`.

  Raises:
    OSError: The file cannot be written.
    ValueError: `float32_layers` cannot be used.
  """
  os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
  built = build(made, precision, float32_layers)
  with files.replacing(path, 'wb') as file:
    onnx.save_model(built, file)


class _Graph:
  """Collects nodes and weights. The name of a value is the name of its node."""

  def __init__(self, made: checkpoint_lib.Checkpoint, precision: str = FLOAT32):
    self._config = made.config
    self._tensors = made.tensors
    self._dtype = np.dtype(precision)
    self._nodes: list[onnx.NodeProto] = []
    self._weights: list[onnx.TensorProto] = []

  def build(self) -> onnx.ModelProto:
    self.prepare()
    hidden = self._embeddings()
    for number in range(self._config.num_hidden_layers):
      hidden = self._layer(hidden, f'bert.encoder.layer.{number}')
    logits = self._exact_linear(hidden, 'qa_outputs')
    logits = self.node('Cast', [logits], to=onnx.TensorProto.FLOAT)
    self.node('Split', [logits], outputs=['start_column', 'end_column'], axis=2)
    axis = self.weight('last_axis', np.array([2]))
    self.node('Squeeze', ['start_column', axis], outputs=['start_logits'])
    self.node('Squeeze', ['end_column', axis], outputs=['end_logits'])
    shape = ['batch', 'sequence']
    integer, real = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
    names = ('input_ids', 'attention_mask', 'token_type_ids')
    return helper.make_model(
      helper.make_graph(
        self._nodes,
        'bert',
        [helper.make_tensor_value_info(n, integer, shape) for n in names],
        [
          helper.make_tensor_value_info(n, real, shape)
          for n in ('start_logits', 'end_logits')
        ],
        self._weights,
      ),
      opset_imports=[
        helper.make_opsetid('', _OPSET),
        helper.make_opsetid(_CONTRIB, 1),
      ],
      ir_version=_IR_VERSION,
    )

  def node(self, kind: str, inputs: list[str], **more) -> str:
    """Adds an operator and returns the name of its first output."""
    outputs = more.pop('outputs', [f'{kind}_{len(self._nodes)}'])
    self._nodes.append(
      helper.make_node(kind, inputs, outputs, name=outputs[0], **more)
    )
    return outputs[0]

  def weight(self, name: str, value: np.ndarray) -> str:
    """Adds a constant and returns its name.

    A float32 constant gets the type of the graph.
    """
    if value.dtype == np.float32:
      value = value.astype(self._dtype)
    self._weights.append(numpy_helper.from_array(value, name))
    return name

  def prepare(self) -> None:
    """Adds the values that all layers use."""
    heads, size = self._config.num_attention_heads, self._head_size
    for name, value in (
      ('one', 1),
      ('half', 0.5),
      ('root_of_two', 2**0.5),
      ('root_of_head', size**0.5),
      ('hidden', _HIDDEN),
    ):
      self.weight(name, np.array(value, np.float32))
    self.weight('heads', np.array([0, 0, heads, size]))
    self.weight('flat', np.array([0, 0, heads * size]))
    axes = self.weight('mask_axes', np.array([1, 2]))
    real = helper.np_dtype_to_tensor_dtype(self._dtype)
    mask = self.node('Cast', ['attention_mask'], to=real)
    mask = self.node('Sub', ['one', self.node('Unsqueeze', [mask, axes])])
    self._mask = self.node('Mul', [mask, 'hidden'])  # [B, 1, 1, T]

  def _embeddings(self) -> str:
    outputs = []
    for kind, ids in (('word', 'input_ids'), ('token_type', 'token_type_ids')):
      name = f'bert.embeddings.{kind}_embeddings.weight'
      table = self.weight(name, self._tensors[name])
      outputs.append(self.node('Gather', [table, ids]))
    name = 'bert.embeddings.position_embeddings.weight'
    table = self.weight(name, self._tensors[name])
    zero = self.weight('zero', np.array([0]))
    one = self.weight('one_axis', np.array([1]))
    two = self.weight('two', np.array([2]))
    shape = self.node('Shape', ['input_ids'])
    length = self.node('Slice', [shape, one, two])
    positions = self.node('Slice', [table, zero, length, zero])
    total = self.node('Add', [self.node('Add', outputs), positions])
    return self.norm(total, 'bert.embeddings')

  def _layer(self, hidden: str, layer: str) -> str:
    mixed = self.attention(hidden, f'{layer}.attention.self')
    mixed = self.linear(mixed, f'{layer}.attention.output.dense')
    mixed = self.norm(
      self.node('Add', [mixed, hidden]), f'{layer}.attention.output'
    )
    inner = self.gelu(self.linear(mixed, f'{layer}.intermediate.dense'))
    inner = self.linear(inner, f'{layer}.output.dense')
    return self.norm(self.node('Add', [inner, mixed]), f'{layer}.output')

  def norm(self, hidden: str, name: str) -> str:
    parts = [
      self.weight(key, self._tensors[key])
      for key in (f'{name}.LayerNorm.weight', f'{name}.LayerNorm.bias')
    ]
    return self.node(
      'LayerNormalization',
      [hidden, *parts],
      axis=-1,
      epsilon=self._config.layer_norm_eps,
    )

  def gelu(self, hidden: str) -> str:
    """Adds x/2 * (1 + erf(x / sqrt(2))) and returns its name."""
    error = self.node('Erf', [self.node('Div', [hidden, 'root_of_two'])])
    total = self.node('Mul', [hidden, self.node('Add', [error, 'one'])])
    return self.node('Mul', [total, 'half'])

  def attention(self, hidden: str, name: str) -> str:
    """Adds softmax(Q K' / sqrt(head size) + mask) V; returns its name."""
    query, key, value = (
      self._heads(self.linear(hidden, f'{name}.{part}'), axes)
      for part, axes in (
        ('query', [0, 2, 1, 3]),
        ('key', [0, 2, 3, 1]),
        ('value', [0, 2, 1, 3]),
      )
    )
    scores = self.node('MatMul', [query, key])
    scores = self.node('Div', [scores, 'root_of_head'])
    scores = self.node('Add', [scores, self._mask])
    weights = self.node('Softmax', [scores], axis=-1)
    mixed = self.node('MatMul', [weights, value])
    mixed = self.node('Transpose', [mixed], perm=[0, 2, 1, 3])
    return self.node('Reshape', [mixed, 'flat'])

  @property
  def _head_size(self) -> int:
    return self._config.hidden_size // self._config.num_attention_heads

  def _heads(self, hidden: str, axes: list[int]) -> str:
    split = self.node('Reshape', [hidden, 'heads'])
    return self.node('Transpose', [split], perm=axes)

  def linear(self, hidden: str, name: str) -> str:
    return self._exact_linear(hidden, name)

  def _exact_linear(self, hidden: str, name: str) -> str:
    weight, bias = (self._tensors[f'{name}.{x}'] for x in ('weight', 'bias'))
    return self._exact_linear_of(hidden, name, weight, bias)

  def _exact_linear_of(
    self, hidden: str, name: str, weight: np.ndarray, bias: np.ndarray
  ) -> str:
    matrix = self.weight(f'{name}.weight', np.ascontiguousarray(weight.T))
    total = self.node('MatMul', [hidden, matrix])
    return self.node('Add', [total, self.weight(f'{name}.bias', bias)])


class _Int8Graph(_Graph):
  """A graph with the int8 operators of ONNX Runtime for the CPU."""

  def __init__(self, made: checkpoint_lib.Checkpoint, float32_layers: str):
    super().__init__(made)
    self._float32_layers = float32_layers
    self._kept = 0

  def build(self) -> onnx.ModelProto:
    built = super().build()
    if self._float32_layers and not self._kept:
      raise ValueError(
        f'No linear layer matches {self._float32_layers!r}. Their names are'
        ' like bert.encoder.layer.3.output.dense.'
      )
    return built

  def prepare(self) -> None:
    self._mask = self.node(
      'Cast', ['attention_mask'], to=onnx.TensorProto.INT32
    )

  def gelu(self, hidden: str) -> str:
    return self.node('Gelu', [hidden], domain=_CONTRIB)

  def attention(self, hidden: str, name: str) -> str:
    parts = [f'{name}.{part}' for part in ('query', 'key', 'value')]
    # Query, key and value share one product, so the input is quantized only
    # once.
    together = self._linear_of(
      hidden,
      name,
      np.concatenate([self._tensors[f'{part}.weight'] for part in parts]),
      np.concatenate([self._tensors[f'{part}.bias'] for part in parts]),
    )
    outputs = [f'{part}.out' for part in parts]
    self.node('Split', [together], outputs=outputs, axis=2)
    return self.node(
      'MultiHeadAttention',
      [*outputs, '', self._mask],
      domain=_CONTRIB,
      num_heads=self._config.num_attention_heads,
      mask_filter_value=_HIDDEN,
    )

  def linear(self, hidden: str, name: str) -> str:
    weight, bias = (self._tensors[f'{name}.{x}'] for x in ('weight', 'bias'))
    return self._linear_of(hidden, name, weight, bias)

  def _linear_of(
    self, hidden: str, name: str, weight: np.ndarray, bias: np.ndarray
  ) -> str:
    if self._float32_layers and re.search(self._float32_layers, name):
      self._kept += 1
      return self._exact_linear_of(hidden, name, weight, bias)
    scale = np.maximum(np.abs(weight).max(1), 1e-30) / 127
    # The weights are unsigned with the zero point 128. Without VNNI, ONNX
    # Runtime adds pairs of products of unsigned activations and signed weights
    # in 16 bits, and these sums overflow.
    rounded = (np.rint(weight / scale[:, None]) + 128).astype(np.uint8)
    return self.node(
      'DynamicQuantizeMatMul',
      [
        hidden,
        self.weight(f'{name}.weight', np.ascontiguousarray(rounded.T)),
        self.weight(f'{name}.scale', scale),
        self.weight(f'{name}.zero', np.full(len(scale), 128, np.uint8)),
        self.weight(f'{name}.bias', bias),
      ],
      domain=_CONTRIB,
    )
