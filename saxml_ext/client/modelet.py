"""What is asked of a model server about a model: save, export, status."""

from collections.abc import Sequence

from saxml_ext.client import data_client
from saxml_ext.protobuf import modelet_pb2
from saxml_ext.protobuf import modelet_pb2_grpc

_STUB = modelet_pb2_grpc.ModeletStub
_EXPORT = data_client.Method('Export', _STUB, 'Export')
_SAVE = data_client.Method('Save', _STUB, 'Save')


class Modelet:
  """The control methods of one of a model's servers, as coroutines.

  Errors are those of `data_client.DataClient`.
  """

  def __init__(self, client: data_client.DataClient):
    self._client = client

  async def save(self, checkpoint_path: str, timeout: float | None) -> None:
    """Writes the model's checkpoint."""
    request = modelet_pb2.SaveRequest(
        model_key=self._client.model_id, checkpoint_path=checkpoint_path
    )
    await self._client.call(_SAVE, request, timeout)

  async def export(
      self,
      path: str,
      method_names: Sequence[str],
      signatures: Sequence[str],
      rng_seed_mode: int,
      multi_device: bool,
      timeout: float | None,
  ) -> None:
    """Writes methods of the model as a TensorFlow SavedModel.

    Args:
      path: directory to write.
      method_names: data methods.
      signatures: their names there, one per method; may be empty.
      rng_seed_mode: a `modelet_pb2.ExportRequest.RngSeedMode`.
      multi_device: whether it shall run on several GPUs.
      timeout: seconds; None for no limit.
    """
    request = modelet_pb2.ExportRequest(
        model_key=self._client.model_id,
        export_path=path,
        serialized_model_format=modelet_pb2.ExportRequest.TF_SAVEDMODEL_V0,
        rng_seed_mode=rng_seed_mode,
        method_names=method_names,
        signatures=signatures,
        enable_gpu_multi_device_execution=multi_device,
    )
    await self._client.call(_EXPORT, request, timeout)
