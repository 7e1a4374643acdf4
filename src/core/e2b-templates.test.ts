import { expect, test } from 'vitest';
import { parseTemplateName, readTemplateBegin, readTemplateStart } from './e2b-templates.ts';

test('splits names of templates at the tag and leaves out namespaces', () => {
  expect(parseTemplateName('Mine')).toEqual({ name: 'mine', tag: 'default' });
  expect(parseTemplateName('team/mine:v1')).toEqual({ name: 'mine', tag: 'v1' });
});

test('gives a new build the tag of its name and the listed tags', () => {
  const tagsOf = (body: object) => readTemplateBegin(body as never).tags;
  expect(tagsOf({ name: 'a' })).toEqual(['default']);
  expect(tagsOf({ name: 'a', tags: ['x', 'y', 'x'] })).toEqual(['x', 'y']);
  expect(tagsOf({ name: 'a:v1', tags: ['x'] })).toEqual(['v1', 'x']);
  expect(readTemplateBegin({ alias: 'b', cpuCount: 2, memoryMB: 512 })).toEqual({
    ...{ name: 'b', tags: ['default'], cpuMillis: 2000, memoryMb: 512 },
  });
});

test('refuses names and tags with other characters', () => {
  for (const name of ['', 'a b', '-a', 'ä', 'x'.repeat(129)]) {
    expect(() => readTemplateBegin({ name }), name).toThrow('invalid template name');
  }
  expect(() => readTemplateBegin({ name: 'a', tags: ['a b'] })).toThrow('invalid tag "a b"');
  expect(() => readTemplateBegin({ name: 'a', memoryMB: 1 })).toThrow('memoryMB');
});

test('refuses steps that lack arguments', () => {
  const read = (...steps: object[]) => readTemplateStart({ steps } as never);
  expect(read({ type: 'RUN', args: ['true'] }).steps).toMatchObject([{ type: 'RUN', filesHash: '' }]);
  expect(() => read({ type: 'RUN' })).toThrow('steps[0]: RUN has 0 arguments, expected 1');
  expect(() => read({ type: 'COPY', args: ['a', 'b'] })).toThrow('steps[0]: COPY has no filesHash');
  expect(() => read({ type: 'ENV', args: ['A', '1', 'B'] })).toThrow('ENV has a name without a value');
  expect(() => read({ type: 'ENV', args: ['A=B', '1'] })).toThrow('invalid request body');
  expect(() => read({ type: 'EXPOSE', args: ['1'] })).toThrow('steps[0].type');
});
