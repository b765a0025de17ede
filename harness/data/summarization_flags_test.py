from absl.testing import absltest
from absl.testing import flagsaver

from harness.data import bundle
from harness.data import summarization_flags


def _lengths(**flags) -> list[int]:
  with flagsaver.flagsaver(**{'sample_count': 40, **flags}):
    task = summarization_flags.load(bundle.model_dir(), 600, 300)
  assert task.tokenizer.get_vocab_size() == 4096
  return [len(ids) for ids in task.prompt_ids]


class SummarizationFlagsTest(absltest.TestCase):
  def test_prompts_are_cut_where_the_model_is_meant_to(self):
    self.assertEqual(max(_lengths()), 300)

  def test_prompts_are_cut_where_the_flag_says(self):
    self.assertEqual(max(_lengths(max_input_length=20)), 20)
    self.assertLen(_lengths(sample_count=3), 3)

  def test_more_than_the_model_takes_is_refused(self):
    with self.assertRaisesRegex(ValueError, '=601 is above 600.*lower it'):
      _lengths(max_input_length=601)

  def test_files_of_the_user(self):
    with self.assertRaisesRegex(ValueError, '/none/tokenizer.json'):
      _lengths(tokenizer_path='/none/tokenizer.json')
    with self.assertRaisesRegex(OSError, '/none/eval.json'):
      _lengths(dataset_path='/none/eval.json')


if __name__ == '__main__':
  absltest.main()
