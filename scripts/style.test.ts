import { expect, test } from 'vitest';
import { findingsOfOther, findingsOfScript } from './style.ts';

const rulesOf = (text: string) => findingsOfScript('a.ts', text).map(({ rule, line }) => `${line}: ${rule}`);

test('the style check accepts plain comments, titles and log messages', () => {
  const text = [
    '/** Returns the number of open calls. */',
    'export const openCalls = () => 0;',
    "test('returns null when no zygote is listening', () => log.warn({}, 'sandbox stop failed; retrying'));",
  ];
  expect(rulesOf(text.join('\n'))).toEqual([]);
});

test('the style check finds banned words, openers and long lines of comments', () => {
  const long = `// ${'word '.repeat(30)}`;
  const text = ['/** Of one that nobody has. */', 'const a = 1;', long, `const b = 'nobody'; // nobody`];
  expect(rulesOf(text.join('\n'))).toEqual(['1: banned word', '1: opener', '3: long comment line', '4: banned word']);
});

test('the style check finds first sentences of more than 20 words', () => {
  const words = Array.from({ length: 25 }, () => 'word').join(' ');
  expect(rulesOf(`/** Returns ${words}. */`)).toContain('1: long first sentence');
});

test('the style check finds titles without a subject and log messages with an article', () => {
  expect(rulesOf("test('it is gone', () => undefined);")).toEqual(['1: title']);
  expect(rulesOf("describeWith(['docker'], 'what is left', () => undefined);")).toEqual(['1: title']);
  expect(rulesOf("log.warn({}, 'a sandbox could not be stopped');")).toEqual(['1: log message']);
});

test('the style check reads comments of other languages', () => {
  expect(findingsOfOther('a.py', '# nobody has it\nx = 1  \n')).toMatchObject([{ rule: 'banned word', line: 1 }]);
  expect(findingsOfOther('a.go', '// somebody has it\n')).toMatchObject([{ rule: 'banned word', line: 1 }]);
});
