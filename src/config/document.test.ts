import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { configurationPage, sampleFile } from './document.ts';
import { readYaml } from './env.ts';
import { SETTINGS, variableOf } from './settings.ts';

const paths = Object.keys(SETTINGS) as (keyof typeof SETTINGS)[];

test('each setting has a different variable, whose name is the path in upper snake case', () => {
  expect(variableOf('jwt.secretFile')).toBe('ROOKERY_JWT_SECRET_FILE');
  expect(variableOf('enable_func_token_auth')).toBe('ROOKERY_ENABLE_FUNC_TOKEN_AUTH');
  expect(new Set(paths.map(variableOf)).size).toBe(paths.length);
});

describe.each(paths)('%s', path => {
  test('a setting has an example that is a valid value', () => {
    expect(() => SETTINGS[path].read(parse(SETTINGS[path].example))).not.toThrow();
  });

  test('a setting is listed on the page with its variable', () => {
    expect(configurationPage()).toContain(`| \`${path}\`<br>\`${variableOf(path)}\``);
  });
});

test('the sample file without its comment marks is a valid configuration with every setting', () => {
  const live = sampleFile()
    .split('\n')
    .filter(line => /^#( {2}){0,2}\w+:( |$)/.test(line))
    .map(line => line.slice(1))
    .join('\n');
  const { given, problems } = readYaml(live, 'sample', '/');
  expect(problems).toEqual([]);
  expect(given.map(entry => entry.path)).toEqual(paths);
});
