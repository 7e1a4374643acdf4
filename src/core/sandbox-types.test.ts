import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { SETTINGS } from '../config/settings.ts';
import { DRIVERS, INSTALLED_SANDBOX_TYPES, runsImages, SANDBOX_TYPES } from './sandbox-types.ts';

const SRC = join(import.meta.dirname, '..');
const read = (file: string) => readFileSync(join(SRC, file), 'utf8');

test('a request can name every driver but the default of a host, whatever is installed', () => {
  expect(SANDBOX_TYPES).toEqual(expect.arrayContaining(['docker', 'supervisor', 'kubernetes']));
  expect(SANDBOX_TYPES).not.toContain('process');
  expect(INSTALLED_SANDBOX_TYPES).toEqual(expect.arrayContaining(['process', 'docker', 'supervisor']));
  expect(INSTALLED_SANDBOX_TYPES).toContain('kubernetes');
});

test.each([
  ['docker', true],
  ['kubernetes', true],
  ['process', false],
  ['supervisor', false],
  ['fake', false],
  ['', false],
])('sandbox_type "%s" runs images: %s', (type, isOfImages) => {
  expect(runsImages(type)).toBe(isOfImages);
});

test('the settings of a driver are below its name, in the order of the table', () => {
  const expected = INSTALLED_SANDBOX_TYPES.flatMap(type =>
    Object.keys(DRIVERS[type].settings).map(name => `${type}.${name}`),
  );
  const heads = INSTALLED_SANDBOX_TYPES.map(type => `${type}.`);
  expect(Object.keys(SETTINGS).filter(path => heads.some(head => path.startsWith(head)))).toEqual(expected);
});

test.each(INSTALLED_SANDBOX_TYPES)('the definition of %s loads no driver: words and settings only', type => {
  const loads = (file: string): string[] =>
    [...read(`sandbox/${type}/${file}`).matchAll(/^import (?!type )[^;]*? from '([^']+)';/gms)]
      .map(([, from]) => String(from))
      .flatMap(from => (/^\.\/[a-z-]*settings\.ts$/.test(from) ? loads(from) : [from]));
  expect(loads('definition.ts').filter(from => !/^\.\.\/\.\.\/core\/|^\.\.\/host\/settings\.ts$/.test(from))).toEqual(
    [],
  );
});

test('a driver is a folder and a row: no other file names one', () => {
  const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter(
    file => /(?<!\.test)\.ts$/.test(file) && !file.startsWith('sandbox/') && file !== 'core/sandbox-types.ts',
  );
  // The directories of container engines, which no caller may have.
  const naming = files.filter(
    file =>
      file !== 'core/host-path.ts' &&
      /^(?! *(?:example:|\/?\*)|const DRIVER = ).*(['"`])(docker|supervisor|kubernetes)\1/m.test(read(file)),
  );
  expect(naming).toEqual([]);
});
