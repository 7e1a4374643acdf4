import { expect, test } from 'vitest';
import { DEFAULT_TEMPLATE, findTemplate, templateNames } from './templates.ts';

test('finds the templates by their names', () => {
  expect(templateNames()).toEqual(['base', 'code-interpreter-v1']);
  expect(templateNames().map(name => findTemplate(name)?.name)).toEqual(templateNames());
  expect(findTemplate(DEFAULT_TEMPLATE)?.programs).toEqual([]);
  expect(findTemplate('toString')).toBeUndefined();
});
