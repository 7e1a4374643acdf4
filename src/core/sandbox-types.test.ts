import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { SETTINGS } from '../config/settings.ts';
import { DRIVERS } from '../sandbox/definitions.ts';
import { DRIVER_NAMES, runsImages, SANDBOX_TYPES } from './sandbox-types.ts';

const SRC = join(import.meta.dirname, '..');
const read = (file: string) => readFileSync(join(SRC, file), 'utf8');

test('a request may name every driver except process, even when the driver is not installed', () => {
  expect(SANDBOX_TYPES).toEqual(expect.arrayContaining(['docker', 'supervisor', 'kubernetes']));
  expect(SANDBOX_TYPES).not.toContain('process');
  expect(DRIVER_NAMES).toEqual(expect.arrayContaining(['process', 'docker', 'supervisor']));
  expect(DRIVER_NAMES).toContain('kubernetes');
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

test('the settings of a driver are listed below its name, in the order of its table', () => {
  const expected = DRIVER_NAMES.flatMap(type => Object.keys(DRIVERS[type].settings).map(name => `${type}.${name}`));
  const heads = DRIVER_NAMES.map(type => `${type}.`);
  expect(Object.keys(SETTINGS).filter(path => heads.some(head => path.startsWith(head)))).toEqual(expected);
});

test.each(DRIVER_NAMES)('the definition of %s imports only core, shared settings and labels', type => {
  const loads = (file: string): string[] =>
    [...read(`sandbox/${type}/${file}`).matchAll(/^import (?!type )[^;]*? from '([^']+)';/gms)]
      .map(([, from]) => String(from))
      .flatMap(from => (/^\.\/[a-z-]*settings\.ts$/.test(from) ? loads(from) : [from]));
  expect(
    loads('definition.ts').filter(
      from => !/^\.\.\/\.\.\/core\/|^\.\.\/host\/settings\.ts$|^\.\/labels\.ts$/.test(from),
    ),
  ).toEqual([]);
});

test('no file outside sandbox/ and core/sandbox-types.ts names a driver', () => {
  const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter(
    file => /(?<!\.test)\.ts$/.test(file) && !file.startsWith('sandbox/') && file !== 'core/sandbox-types.ts',
  );
  // host-path.ts lists the directories of container engines, which requests may not mount.
  const naming = files.filter(
    file =>
      file !== 'core/host-path.ts' &&
      /^(?! *(?:example:|\/?\*)|const DRIVER = ).*(['"`])(docker|supervisor|kubernetes)\1/m.test(read(file)),
  );
  expect(naming).toEqual([]);
});
