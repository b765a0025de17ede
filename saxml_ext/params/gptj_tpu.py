"""Serving params of GPT-J 6B whose programs are compiled ahead of time for TPU.

One class for each pair of a slice and number formats that
`//saxml_ext/aot` has a program set for, registered as

    saxml_ext.params.gptj.GPTJTokenizedINT8V5E2x2

and its like. They are the params of the submission to MLPerf Inference v4.0
but for the devices and the slots: where Sax decodes batches of 32, this server
decodes as many requests together as the chips' memory holds, which is where
its throughput comes from. The numbers of slots are those with which the
compiled programs fit; `summary.txt` of each set says how closely.
"""

from collections.abc import Mapping, Sequence

from saxml_ext.params import published
from saxml_ext.params import registry

_OWN = 'saxml_ext.params.gptj.'


class _Tokenized(published.GPTJ4TokenizedINT8BS32XLAWait40MB6Offline):
  """Ids in and out, in int8 throughout: matrices, activations, KV."""

  # As the fine-tuned checkpoint of MLPerf has it.
  VOCAB_SIZE = 50401
  KV_CACHE_DTYPE = 'int8'
  # Two more than the submission has: they pad prompts less, which
  # docs/aot_report.md says is worth a tenth of the throughput.
  BUCKET_KEYS = [512, 768, 1024, 1280, 1536, 1919]


class _BF16(_Tokenized):
  """The same in bfloat16, but for the KV."""

  QUANTIZATION = 'none'


# Slice -> mesh [replica, data, model], slots in int8 and in bfloat16.
SLICES: Mapping[str, tuple[Sequence[int], int, int]] = {
  'V5E1x1': ([1, 1, 1], 15, 5),
  'V5E2x2': ([1, 1, 4], 96, 84),
  'V5E2x4': ([1, 2, 4], 192, 168),
  'V5E4x4': ([1, 4, 4], 384, 336),
  'V6E2x2': ([1, 1, 4], 208, 192),
  'V5P2x2': ([1, 1, 4], 384, 384),
  'V7X2x2': ([1, 1, 8], 512, 512),
}


def _register(slice_name: str, base: type, numbers: str, slots: int) -> None:
  name = f'GPTJTokenized{numbers}{slice_name}'
  mesh = SLICES[slice_name][0]
  attributes = {
    '__doc__': f'GPT-J 6B in {numbers} on TPU {slice_name}, {slots} slots.',
    '__module__': __name__,
    'ICI_MESH_SHAPE': mesh,
    'NUM_CACHE_SLOTS': slots,
  }
  registry.register(_OWN + name)(type(name, (base,), attributes))


for _slice, (_, _int8, _bf16) in SLICES.items():
  _register(_slice, _Tokenized, 'INT8', _int8)
  _register(_slice, _BF16, 'BF16', _bf16)
