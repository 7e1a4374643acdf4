import { expect, test } from 'vitest';
import { selectedWindow, windowAfterKey } from './time-window.ts';

const WHOLE = { from: 1000, to: 2000 };
const STEP = 10;

test('plus halves a window around its middle, and minus doubles it up to the whole range', () => {
  const once = windowAfterKey('+', null, WHOLE, STEP);
  expect(once).toEqual({ from: 1250, to: 1750 });
  const twice = windowAfterKey('=', once ?? null, WHOLE, STEP);
  expect(twice).toEqual({ from: 1375, to: 1625 });
  expect(windowAfterKey('-', twice ?? null, WHOLE, STEP)).toEqual(once);
  expect(windowAfterKey('-', once ?? null, WHOLE, STEP)).toBeNull();
});

test('arrow keys move a window by a quarter of its length, and not outside of the whole range', () => {
  const window = { from: 1100, to: 1300 };
  expect(windowAfterKey('ArrowRight', window, WHOLE, STEP)).toEqual({ from: 1150, to: 1350 });
  expect(windowAfterKey('ArrowLeft', window, WHOLE, STEP)).toEqual({ from: 1050, to: 1250 });
  expect(windowAfterKey('ArrowLeft', { from: 1010, to: 1210 }, WHOLE, STEP)).toEqual({ from: 1000, to: 1200 });
  expect(windowAfterKey('ArrowRight', { from: 1790, to: 1990 }, WHOLE, STEP)).toEqual({ from: 1800, to: 2000 });
});

test('Escape shows the whole range, and keys without a meaning change nothing', () => {
  expect(windowAfterKey('Escape', { from: 1100, to: 1300 }, WHOLE, STEP)).toBeNull();
  for (const key of ['Escape', '-', 'ArrowLeft', 'ArrowRight', 'Tab'])
    expect(windowAfterKey(key, null, WHOLE, STEP)).toBeUndefined();
  expect(windowAfterKey('ArrowUp', { from: 1100, to: 1300 }, WHOLE, STEP)).toBeUndefined();
});

test('a window has at least four steps, and one as long as the whole range is the whole range', () => {
  expect(selectedWindow({ from: 1500, to: 1502 }, WHOLE, STEP)).toEqual({ from: 1481, to: 1521 });
  expect(selectedWindow({ from: 1995, to: 2000 }, WHOLE, STEP)).toEqual({ from: 1960, to: 2000 });
  expect(selectedWindow({ from: 1200, to: 1300 }, WHOLE, STEP)).toEqual({ from: 1200, to: 1300 });
  expect(selectedWindow(WHOLE, WHOLE, STEP)).toBeNull();
});
