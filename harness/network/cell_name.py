"""The name of a Sax cell's model, when LoadGen reaches it over the network.

A cell needs no further server to be a Network SUT: LoadGen's client sends every
prompt to the model servers by gRPC. What the rules ask besides is a name that
every node has told over the network.
"""

import grpc

from harness.loadgen import target as target_lib
from harness.network import sut_name
from saxml_ext.client import sax
from saxml_ext.common import grpc_util
from saxml_ext.protobuf import common_pb2
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import modelet_pb2_grpc

_ANSWER_SECS = 60.0


def ask(target: target_lib.Target) -> str:
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
