import { expect, test } from 'vitest';
import { ansi } from './ansi.ts';

test('ansi switches a style on before the text and off after the text', () => {
  expect(ansi('red', 'x')).toBe('\u001b[31mx\u001b[39m');
  expect(ansi('bold', 'x')).toBe('\u001b[1mx\u001b[22m');
});
