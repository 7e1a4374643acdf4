import { expect, test } from 'vitest';
import { outputText } from './output-text.ts';

const BYTES = Buffer.from('aé😀');

test.each([
  [7, 'aé😀'],
  [6, 'aé'],
  [5, 'aé'],
  [3, 'aé'],
  [2, 'a'],
])('outputText ends with a whole character when cut at %i bytes', (most, text) => {
  expect(outputText(BYTES.subarray(0, most), most)).toBe(text);
});

test('outputText replaces an incomplete character by U+FFFD when the output was not cut', () => {
  expect(outputText(BYTES.subarray(0, 2), 3)).toBe('a\ufffd');
});
