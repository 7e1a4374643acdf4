import { expect, test } from 'vitest';
import { sectionOf } from './programs.ts';

const section = { name: 'rookery-a-b-1', argv: ['/usr/bin/python3'], instanceId: 'none', logPath: '/inc/.x.log' };

test('sectionOf writes a program that supervisord neither starts nor restarts by itself', () => {
  const text = sectionOf(section);
  expect(text).toContain('[program:rookery-a-b-1]\n');
  expect(text).toContain('\nautostart = false\nautorestart = false\nstartsecs = 0\n');
});

test('sectionOf quotes the words of the command and escapes percent signs', () => {
  expect(sectionOf({ ...section, argv: ['a b', 'c"d\\e', '50%'] })).toContain('command = "a b" "c\\"d\\\\e" "50%%"\n');
  expect(sectionOf({ ...section, logPath: '/100%/.x' })).toContain('stdout_logfile = /100%%/.x\n');
});

test.each(['a\nb', 'a ;b', 'a #b'])('sectionOf refuses a path that would be cut or would add a line: %j', path => {
  expect(() => sectionOf({ ...section, argv: [path] })).toThrow('cannot hold the path');
});
