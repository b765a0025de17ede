"""Adds up what XLA's own cost model says of a compiled TPU program.

XLA for TPU writes into each fusion how many cycles it expects it to take. The
sum, with bodies of loops multiplied by their trip counts, is the base of all
estimates of speed here. What it leaves out (exchanges between chips, Pallas
kernels, prefetches into the chip's memory) is listed with its bytes, for
`rules.py` to price.

Loops whose trip count the condition does not state run a number of steps that
depends on data: decoding. A program may have one; its cost is kept per step. Of
a conditional the branch with most cycles counts.
"""

from collections.abc import Callable, Iterable, Mapping
import dataclasses
import re

from saxml_ext.aot.report.compiled import costs
from saxml_ext.aot.report.compiled import hlo_text
from saxml_ext.aot.report.compiled import hlo_traffic

# They move no data, or their start has been counted.
_FREE = re.compile(
  r'^(parameter|constant|tuple|get-tuple-element|bitcast|after-all|'
  r'partition-id|replica-id|opt-barrier|optimization-barrier|.*-done)$'
)
_PREFETCHES = (
  'copy-start',
  'slice-start',
  'async-start',
  'dynamic-slice-start',
)
_COLLECTIVE = re.compile(
  r'^(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)'
  r'(-start)?$'
)
# Names by which fusions around collectives are known.
_REDUCE_SCATTER = 'all-reduce-scatter'
_STARTS = 'custom_call_target="AsyncCollectiveStart"'
_PRODUCTS = ('convolution', 'dot')
# jnp.einsum names its products by their spec. Those of attention have one first
# dim, the request, in both operands and the result; those of matrices do not.
_PER_REQUEST = re.compile(r'/([a-z])[a-z]+,\1[a-z]+->\1[a-z]+/')
_MOVES = (
  'copy',
  'transpose',
  'reshape',
  'concatenate',
  'pad',
  'dynamic-update-slice',
  *hlo_traffic.SLICES,
)
# XLA writes the largest number there is where it has no estimate.
_UNKNOWN = 2**62
_PALLAS = 'tpu_custom_call'
# Called with a call of a kernel, its computation, and the bytes of its operands
# and results in HBM.
Describe = Callable[
  [hlo_text.Instruction, hlo_text.Computation, float], costs.KernelCall | None
]
# What is paid once, and each step of data-dependent loops.
_Costs = tuple[costs.Cost, tuple[costs.Cost, ...]]


def read(
  text: str,
  memory: Mapping[str, int] | None = None,
  describe: Describe = lambda i, within, traffic: None,
) -> costs.Program:
  """Costs of a program.

  Args:
    text: its optimized HLO, as of `jax.stages.Compiled.as_text()`.
    memory: as of `costs.Program`.
    describe: of a call of a Pallas kernel, what it costs; None: not known, all
      of its operands are taken to be read once.

  Raises:
    ValueError: it is no HLO module, or has more than one data-dependent loop.
  """
  module = hlo_text.parse(text)
  once, steps = _Reader(module, describe).computation(module.entry)
  if len(steps) > 1:
    raise ValueError(
      f'the program has {len(steps)} loops without a known trip count; costs'
      ' per step are known of one at most.'
    )
  return costs.Program(once, steps[0] if steps else None, memory or {})


def trip_count(
  module: hlo_text.Module, loop: hlo_text.Instruction
) -> int | None:
  """How often a `while` runs; None: that depends on data.

  It is what XLA noted, or the one constant that the counter is compared with:
  JAX's loops count from 0 in steps of 1.
  """
  noted = loop.text(r'known_trip_count"?:\{"?n"?:"?(\d+)')
  if noted:
    return int(noted)
  (name,) = loop.called['condition']
  condition = module.computations[name]
  root = next(i for i in condition.values() if i.is_root)
  if not _compares(module, root):
    return None
  constants = [
    int(found)
    for i in condition.values()
    if i.opcode == 'constant' and (found := i.text(r'^\((\d+)\)'))
  ]
  return constants[0] if len(constants) == 1 else None


def _compares(module: hlo_text.Module, root: hlo_text.Instruction) -> bool:
  if root.opcode == 'fusion':
    callee = module.computations[root.called['calls'][0]]
    root = next(i for i in callee.values() if i.is_root)
  return root.opcode == 'compare' and 'direction=LT' in root.rest


class _Reader:
  """Walks a module; each computation is read once."""

  def __init__(self, module: hlo_text.Module, describe: Describe):
    self._module = module
    self._describe = describe
    self._known: dict[str, _Costs] = {}

  def computation(self, name: str) -> _Costs:
    """Cost of a computation, and of one step of each loop in it."""
    if name not in self._known:
      total = costs.Cost()
      steps: tuple[costs.Cost, ...] = ()
      computation = self._module.computations[name]
      for instruction in computation.values():
        cost, more = self._instruction(instruction, computation)
        total += cost
        steps += more
      self._known[name] = (total, steps)
    return self._known[name]

  def _instruction(
    self, i: hlo_text.Instruction, within: hlo_text.Computation
  ) -> _Costs:
    if i.opcode == 'while':
      return self._loop(i)
    if i.opcode == 'conditional':
      names = [n for names in i.called.values() for n in names]
      branches = map(self.computation, names)
      return max(branches, key=lambda branch: branch[0].total_cycles)
    if i.opcode == 'call':
      return self.computation(i.called['to_apply'][0])
    return self._operation(i, within), ()

  def _loop(self, loop: hlo_text.Instruction) -> _Costs:
    body, steps = self.computation(loop.called['body'][0])
    condition, _ = self.computation(loop.called['condition'][0])
    trips = trip_count(self._module, loop)
    if trips is None:
      return costs.Cost(), (body + condition, *steps)
    return (body + condition).times(trips), steps

  def _operation(
    self, i: hlo_text.Instruction, within: hlo_text.Computation
  ) -> costs.Cost:
    if _FREE.match(i.opcode):
      return costs.Cost()
    if i.opcode in _PREFETCHES:
      return costs.Cost(hbm_bytes=hlo_traffic.prefetched(i))
    exchanges = self._exchanges(i)
    if exchanges:
      return costs.Cost(collectives=exchanges)
    traffic = hlo_traffic.hbm_bytes(self._module, i, within)
    if i.opcode == 'custom-call' and _PALLAS in i.rest:
      call = self._describe(i, within, traffic)
      if call is None:
        call = costs.KernelCall(hlo_text.kernel_name(i), traffic, 1)
      return costs.Cost(hbm_bytes=call.bytes, kernels=(call,))
    cycles = i.text(r'"estimated_cycles":"?(\d+)')
    if cycles is not None and int(cycles) < _UNKNOWN:
      return costs.Cost({self._kind(i): int(cycles)}, traffic)
    moved = hlo_traffic.moved(i, within)
    return costs.Cost(
      hbm_bytes=traffic, uncosted=float(moved > 0), uncosted_bytes=moved
    )

  def _exchanges(self, i: hlo_text.Instruction) -> tuple[costs.Collective, ...]:
    """Of an operation that is a collective, or a fusion around one.

    XLA wraps a reduce-scatter as an all-reduce and the slice that is kept, and
    cuts an asynchronous collective into fusions for its start, what runs
    meanwhile and its end: it is counted where it starts.
    """
    found = _COLLECTIVE.match(i.opcode)
    if found:
      return (_exchange(i, found[1]),)
    if i.opcode != 'fusion':
      return ()
    (name,) = i.called['calls']
    inner = self._module.computations[name].values()
    scattered = name.startswith(_REDUCE_SCATTER)
    if not scattered and not any(_STARTS in x.rest for x in inner):
      return ()
    exchanges = [
      _exchange(x, m[1]) for x in inner if (m := _COLLECTIVE.match(x.opcode))
    ]
    if scattered:
      kind = 'reduce-scatter'
      exchanges = [dataclasses.replace(x, kind=kind) for x in exchanges]
    return tuple(exchanges)

  def _kind(self, i: hlo_text.Instruction) -> str:
    if self._only_moves(i):
      return costs.COPIES
    product = self._product(i)
    if product is None:
      return costs.ELEMENTWISE
    if _PER_REQUEST.search(product.text(r'op_name="([^"]*)"') or ''):
      return costs.ATTENTION
    return costs.MATRICES

  def _only_moves(self, i: hlo_text.Instruction) -> bool:
    """Whether an operation changes no value, just its place."""
    if i.opcode == 'fusion':
      callee = self._module.computations[i.called['calls'][0]]
      return all(map(self._only_moves, callee.values()))
    return i.opcode in _MOVES or bool(_FREE.match(i.opcode))

  def _product(self, i: hlo_text.Instruction) -> hlo_text.Instruction | None:
    """The product of matrices in an operation, if there is one."""
    if i.opcode in _PRODUCTS:
      return i
    for name in i.called.get('calls', ()):
      for inner in self._module.computations[name].values():
        found = self._product(inner)
        if found is not None:
          return found
    return None


def _exchange(i: hlo_text.Instruction, kind: str) -> costs.Collective:
  group = group_size(i.rest)
  sizes: Iterable[int] = [array.bytes for array in i.arrays]
  if i.opcode.endswith('-start') and kind != 'all-reduce':
    sizes = [max(sizes)]  # Operand, result and flags.
  size = sum(sizes)
  if kind == 'reduce-scatter':
    size *= 1 if i.opcode.endswith('-start') else group
  return costs.Collective(kind, size, group, 1)


def group_size(attributes: str) -> int:
  """Devices in each group of a collective, in any of XLA's notations.

  `{{0,1},{2,3}}`, `[2,2]<=[4]` and `mesh['x'=1,'y'=4] {'y'}` are of 2, 2 and 4;
  the last may tell the order of devices too, before its axes.

  Raises:
    ValueError: there is none of them.
  """
  found = re.search(
    r'replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}', attributes
  )
  if found:
    axes = dict(re.findall(r"'(\w+)'=(\d+)", found[1]))
    size = 1
    for axis in re.findall(r"'(\w+)'", found[2]):
      size *= int(axes[axis])
    return size
  found = re.search(r'replica_groups=\[\d+,(\d+)\]', attributes)
  if found:
    return int(found[1])
  found = re.search(r'replica_groups=\{\{([\d,]*)\}', attributes)
  if found:
    return len(found[1].split(','))
  if 'source_target_pairs' in attributes:
    return 2
  raise ValueError(
    f'no group of devices is found in the collective {attributes[:300]!r}.'
  )
