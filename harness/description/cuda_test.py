from absl.testing import absltest

from harness.description import cuda
from harness.description.testing import fake_nvml


class CudaTest(absltest.TestCase):
  def test_devices(self):
    nvml = fake_nvml.FakeNvml(devices=2)
    detected = cuda.detect(nvml)
    self.assertEqual((detected.driver, detected.cuda), ('550.54', '12.4'))
    self.assertLen(detected.devices, 2)
    self.assertEqual(
      detected.devices[1],
      cuda.Device(
        index=1,
        name='NVIDIA H200',
        memory_bytes=150_754_820_096,
        compute_capability='9.0',
        max_graphics_clock_mhz=1980,
        max_memory_clock_mhz=3201,
        pcie_generation=5,
        pcie_width=16,
        power_limit_watts=None,
      ),
    )
    self.assertEqual(nvml.running, 0)

  def test_no_driver_is_no_error(self):
    for error in (
      fake_nvml.NVMLError_LibraryNotFound(),
      fake_nvml.NVMLError_DriverNotLoaded(),
    ):
      detected = cuda.detect(fake_nvml.FakeNvml(error=error))
      self.assertIsNone(detected.driver)
      self.assertEqual(detected.devices, ())

  def test_failing_driver_is_reported(self):
    error = fake_nvml.NVMLError('Driver/library version mismatch')
    with self.assertRaisesRegex(cuda.CudaError, 'mismatch.*nvidia-smi'):
      cuda.detect(fake_nvml.FakeNvml(error=error))

  def test_this_machine_is_detected(self):
    self.assertIsInstance(cuda.detect(), cuda.Cuda)

  def test_description_of_devices(self):
    detected = cuda.detect(fake_nvml.FakeNvml(devices=2))
    values = cuda.describe_accelerators(detected, None)
    self.assertEqual(
      values,
      {
        'accelerators_per_node': '2',
        'accelerator_model_name': 'NVIDIA H200',
        'accelerator_memory_capacity': '140 GiB',
        'accelerator_frequency': '1980 MHz (max)',
        'accelerator_host_interconnect': 'PCIe Gen5 x16',
      },
    )
    one = cuda.describe_accelerators(cuda.detect(fake_nvml.FakeNvml()), None)
    self.assertEqual(one['accelerator_interconnect'], 'N/A')


if __name__ == '__main__':
  absltest.main()
