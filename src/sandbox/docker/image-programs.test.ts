import { expect, test } from 'vitest';
import { majorOf } from './image-programs.ts';

test.each([
  ['openjdk version "17.0.9" 2023-10-17\nOpenJDK Runtime Environment', '17'],
  ['java version "1.8.0_292"', '8'],
  ['openjdk version "21" 2023-09-19', '21'],
  ['Picked up JAVA_TOOL_OPTIONS: -Dx\nopenjdk version "11.0.2"', '11'],
  ['v22.18.0\n', '22'],
  ['(node:1) Warning: x\nv20.20.2', '20'],
  ['sh: java: not found', ''],
  ['', ''],
])('majorOf(%j) returns %j', (text, version) => {
  expect(majorOf(text)).toBe(version);
});
