import { expect, test } from 'vitest';
import { ansi } from './ansi.ts';

test('a style is switched on before the text and off after it', () => {
  expect(ansi('red', 'x')).toBe('\u001b[31mx\u001b[39m');
  expect(ansi('bold', 'x')).toBe('\u001b[1mx\u001b[22m');
});
