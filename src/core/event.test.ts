import { expect, test } from 'vitest';
import { isAbout, subjectOf, subjectOfData } from './event.ts';

const URN = 'sn:cn:yrk:default:function:0@svc@told:$latest';

test.each([
  [{ owner: 'agent', instance_id: 'a', namespace: 'n', name: 'x' }, { agent: 'a' }],
  [{ owner: 'function', instance_id: 'i', function: URN }, { function: '0@svc@told' }],
  [{ function: URN, instances: 1, ready: 1 }, { function: '0@svc@told' }],
  [{ job: 'j', status: 'FAILED' }, { job: 'j' }],
  [{}, {}],
])('the subject of an event with the fields %j is %j', (fields, subject) => {
  expect(subjectOf(fields)).toEqual(subject);
  expect(subjectOfData(JSON.stringify(fields))).toEqual(subject);
});

test.each(['', '{', 'null', '7'])('the data %j of another replica has no subject', data => {
  expect(subjectOfData(data)).toEqual({});
});

test('an event is wanted if it is about the agent, the function or the job that is wanted', () => {
  expect(isAbout({ agent: 'a' }, {})).toBe(true);
  expect(isAbout({ agent: 'a' }, { agent: 'a' })).toBe(true);
  expect(isAbout({ agent: 'a' }, { agent: 'b' })).toBe(false);
  expect(isAbout({ function: 'f' }, { agent: 'f' })).toBe(false);
  expect(isAbout({ job: 'f' }, { function: 'f' })).toBe(false);
  expect(isAbout({}, { job: 'f' })).toBe(false);
});
