"""Calls a model's custom methods, and has its servers write files."""

from collections.abc import Sequence

from saxml_ext.client.transport import blocking
from saxml_ext.client.transport import data_client
from saxml_ext.client.transport import options as options_lib
from saxml_ext.common import errors
from saxml_ext.protobuf import custom_pb2
from saxml_ext.protobuf import custom_pb2_grpc
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import modelet_pb2_grpc

_STUB = modelet_pb2_grpc.ModeletStub
_EXPORT = data_client.Method('Export', _STUB, 'Export')
_SAVE = data_client.Method('Save', _STUB, 'Save')
# Options of a request; None for no extra inputs and no deadline.
_Options = options_lib.ModelOptions | None


# Maps each way to draw random numbers in an exported model to its protocol
# value.
SEED_MODES = {
  'fixed': modelet_pb2.ExportRequest.FIXED,
  'stateful': modelet_pb2.ExportRequest.STATEFUL,
  'stateless': modelet_pb2.ExportRequest.STATELESS,
}


class CM(data_client.Caller):
  """The custom methods of a model, as coroutines; errors as in `lm.LM`."""

  async def Custom(
    self,
    request: data_client.Content,
    method_name: str,
    options: _Options = None,
  ) -> bytes:
    """Calls a custom method of the model.

    Args:
      request: The input, in the encoding that the method expects.
      method_name: The name under which the model registered the method.
      options: The extra inputs and the deadline.

    Returns:
      The answer, in the encoding of the method.
    """
    method = data_client.Method(
      method_name, custom_pb2_grpc.CustomServiceStub, 'Custom'
    )
    message = custom_pb2.CustomRequest(
      request=data_client.to_bytes(request), method_name=method_name
    )
    return (await self._call(method, message, options)).response

  async def CustomNoException(
    self,
    request: data_client.Content,
    method_name: str,
    options: _Options = None,
  ) -> bytes | errors.SaxError:
    """Calls `Custom`, but returns the error instead of raising it."""
    try:
      return await self.Custom(request, method_name, options)
    except errors.SaxError as e:
      return e


class BlockingCM(blocking.Wrapper[CM]):
  """The custom methods of a model; errors as in `lm.LM`. Thread-safe."""

  COROUTINES = CM

  Custom = blocking.method(CM.Custom)
  CustomNoException = blocking.method(CM.CustomNoException)


class Modelet(data_client.Caller):
  """Methods that make a server of the model write files, as coroutines.

  `options` carry the deadline; extra inputs have no effect here. Every method
  raises `SaxError` like the methods of `lm.LM`. It raises Unimplemented if the
  model cannot be saved or exported.
  """

  async def Save(self, checkpoint_path: str, options: _Options = None) -> None:
    """Writes the model's checkpoint to a directory of the server."""
    request = modelet_pb2.SaveRequest(checkpoint_path=checkpoint_path)
    await self._client.call(_SAVE, request, options)

  async def Export(
    self,
    path: str,
    method_names: Sequence[str],
    signatures: Sequence[str] = (),
    rng_seed_mode: str = 'stateful',
    multi_device: bool = True,
    options: _Options = None,
  ) -> None:
    """Writes methods of the model as a TensorFlow SavedModel.

    Args:
      path: The directory to write, as the server sees it.
      method_names: The data methods, for example "lm.generate".
      signatures: The name of each method in the SavedModel; if empty, the
        methods keep their names.
      rng_seed_mode: The way to draw random numbers: 'fixed', 'stateful' or
        'stateless'.
      multi_device: True if the SavedModel must run on several GPUs.
      options: The options, see the class.

    Raises:
      InvalidArgument: The mode is unknown, or the numbers of methods and
        signatures differ.
    """
    if rng_seed_mode not in SEED_MODES:
      raise errors.InvalidArgument(
        f'rng_seed_mode is "{rng_seed_mode}". Available:'
        f' {", ".join(SEED_MODES)}'
      )
    if signatures and len(signatures) != len(method_names):
      raise errors.InvalidArgument(
        f'got {len(signatures)} signatures for {len(method_names)} methods.'
        ' Pass one per method, or none'
      )
    request = modelet_pb2.ExportRequest(
      export_path=path,
      serialized_model_format=modelet_pb2.ExportRequest.TF_SAVEDMODEL_V0,
      rng_seed_mode=SEED_MODES[rng_seed_mode],
      method_names=method_names,
      signatures=signatures,
      enable_gpu_multi_device_execution=multi_device,
    )
    await self._client.call(_EXPORT, request, options)


class BlockingModelet(blocking.Wrapper[Modelet]):
  """Methods that make a server write files; errors as in `Modelet`."""

  COROUTINES = Modelet

  Save = blocking.method(Modelet.Save)
  Export = blocking.method(Modelet.Export)
