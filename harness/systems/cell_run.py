"""One LoadGen run against a model of a running cell."""

from collections.abc import Sequence

from absl import flags
import grpc

from harness.data import summarization
from harness.data import summarization_flags
from harness.loadgen import runner
from harness.loadgen import target
from harness.network import sut_name
from harness.systems import cell
from saxml_ext.client import sax
from saxml_ext.common import grpc_util
from saxml_ext.common import program
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import modelet_pb2_grpc

_ANSWER_SECS = 60.0


def network_name(target: target.Target) -> str:
  """Asks the admin server for the model, and each of its servers for itself.

  Returns:
    Such as "Network SUT: /sax/test/gptj (saxml_ext.params.gptj.TinyFP32 from
    /models/tiny) on 10.0.0.7:10001, /sax/test/gptj ...", each node in full.

  Raises:
    errors.SaxError: the admin server does not answer, or has no such model.
    ConnectionError: a model server does not answer.
    ValueError: the model has no server, or one of them has not loaded it.
  """
  sax.SetRoot(target.sax_root)
  detail = sax.ListDetail(target.model_id, sax.AdminOptions(_ANSWER_SECS))
  if not detail.addresses:
    raise ValueError(
      f'{target.model_id} has no model server yet; wait until it has: saxutil'
      f' ls {target.model_id}'
    )
  model = f'{target.model_id} ({detail.model} from {detail.ckpt})'
  nodes = sorted(detail.addresses)
  for address in nodes:
    _check_loaded(address, target.model_id)
  return sut_name.join({node: f'{model} on {node}' for node in nodes})


def _check_loaded(address: str, model_id: str) -> None:
  """Has a model server say that it serves the model."""
  with grpc_util.channel(address) as channel:
    try:
      status = modelet_pb2_grpc.ModeletStub(channel).GetStatus(
        modelet_pb2.GetStatusRequest(), timeout=_ANSWER_SECS
      )
    except grpc.RpcError as error:
      raise ConnectionError(
        f'the model server at {address} does not answer'
        f' ({error.code().name}: {error.details()}); look at its log'
      ) from error
  states = {model.model_key: model.model_status for model in status.models}
  if states.get(model_id) != common_pb2.ModelStatus.LOADED:
    raise ValueError(
      f'the model server at {address} has not loaded {model_id}; wait until it'
      f' has: saxutil ls {model_id}'
    )


_MODEL_PATH = flags.DEFINE_string(
  'model_path', None, 'Model id, /sax/<cell>/<model>.'
)
_SAX_ROOT = flags.DEFINE_string(
  'sax_root', None, "Root of the model's cell. Default: $SAX_ROOT."
)
_NETWORK = flags.DEFINE_enum(
  'network',
  None,
  ['lon'],
  "lon: the run is one of LoadGen over the network; LoadGen's log names the"
  ' model and its servers as a Network SUT.',
)
_STREAM = flags.DEFINE_bool(
  'stream',
  False,
  'Streams the answers, so that the timeline has the times of first tokens. For'
  ' models that sample, on servers that stream; beam search does not.',
)

# The silence watch is what ends a run. The deadline only tells the server when
# nobody can be waiting any more; a request may spend most of its time in the
# server's queue, so it must be far longer.
_DEADLINE_FACTOR = 20


def main(argv: Sequence[str]) -> None:
  del argv
  runner.main(_subject)


def _subject() -> runner.Subject:
  task = summarization_flags.load_as_given()
  model = target.Target(_MODEL_PATH.value, _SAX_ROOT.value)
  generate = cell.generator(
    model, runner.silence_secs() * _DEADLINE_FACTOR, _STREAM.value
  )
  return runner.Subject(
    cell.CellSystem(
      generate, task.prompts, summarization.end_ids(task.tokenizer)
    ),
    [len(prompt) for prompt in task.prompts],
    (lambda: network_name(model)) if _NETWORK.value else None,
  )


if __name__ == '__main__':
  runner.mark_flags_as_required()
  flags.mark_flags_as_required(
    ['model_path', 'tokenizer_path', 'max_input_length']
  )
  program.run(main)
