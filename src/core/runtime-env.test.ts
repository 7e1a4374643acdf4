import { Check } from 'typebox/schema';
import { expect, test } from 'vitest';
import { packagesOf, RUNTIME_ENV, readRuntimeEnv } from './runtime-env.ts';

const read = (value: unknown) => readRuntimeEnv(value, 'runtime_env');

test('a runtime_env with unsupported keys is refused, and the error names them', () => {
  expect(() => read({ conda: {}, image_uri: 'x', env_vars: {} })).toThrow(
    'runtime_env has keys that cannot be honoured here: conda, image_uri',
  );
});

test("unknown keys, keys of Ray's client, config and excludes are ignored", () => {
  expect(read({ nosuch: 1, _ray_commit: 'x', config: { setup_timeout_seconds: 1 }, excludes: ['a'] })).toEqual({
    envVars: {},
    workingDir: null,
    pyModules: [],
    pip: null,
  });
});

test('working_dir and py_modules may name uploaded packages or paths of the host', () => {
  const env = read({
    working_dir: 'gcs://_ray_pkg_1.zip',
    py_modules: ['file:///srv/a.zip', '/srv/b', 'local:///srv/c'],
  });
  expect(env.workingDir).toEqual({ kind: 'package', name: '_ray_pkg_1.zip' });
  expect(env.pyModules).toEqual(['/srv/a.zip', '/srv/b', '/srv/c'].map(path => ({ kind: 'host', path })));
  expect(packagesOf(env)).toEqual(['_ray_pkg_1.zip']);
});

test.each(['https://x.example/a.zip', 's3://bucket/a.zip', 'relative', 'gcs://../x', 'gcs://a/b'])(
  'a working_dir is refused when it is %s',
  uri => {
    expect(() => read({ working_dir: uri })).toThrow('runtime_env.working_dir must ');
  },
);

test("pip is read from a list, or from the object that Ray's client sends", () => {
  expect(read({ pip: ['six==1.16.0'] }).pip?.packages).toEqual(['six==1.16.0']);
  expect(read({ pip: { packages: ['a', 'b'], pip_check: true, pip_version: '==24.0' } }).pip).toEqual({
    packages: ['a', 'b'],
    check: true,
    pipVersion: '==24.0',
    options: [],
  });
  expect(() => read({ pip: ['a\nb'] })).toThrow('runtime_env.pip[0] must be one line');
  const refused = 'names a file ("-r requirements.txt"), and no file of the working directory exists';
  expect(() => read({ pip: ['six', '-r requirements.txt'] })).toThrow(`runtime_env.pip[1] ${refused}`);
  const options = { packages: ['six'], pip_install_options: ['--pre', '-cconstraints.txt'] };
  expect(() => read({ pip: options })).toThrow('runtime_env.pip.pip_install_options[1] names a file');
  expect(() => read({ pip: 'requirements.txt' })).toThrow('runtime_env.pip must be a list');
});

test('a variable is refused when its name is invalid or belongs to the platform', () => {
  expect(() => read({ env_vars: { 'a b': '' } })).toThrow('runtime_env.env_vars.a b must have a name');
  expect(() => read({ env_vars: { ROOKERY_TENANT: 'x' } })).toThrow('belong to the platform');
  expect(() => read({ env_vars: { A: 1 } })).toThrow('runtime_env.env_vars.A must be a string');
});

test.each<[string, unknown]>([
  ['an unsupported key', { conda: {} }],
  ['an unsupported key with the value null', { conda: null }],
  ['a key that Ray does not know', { nosuch: { a: [1] }, _ray_commit: 'x' }],
  ['a package', { working_dir: 'gcs://_ray_pkg_1.zip' }],
  ['an invalid package', { working_dir: 'gcs://../x' }],
  ['a path', { py_modules: ['/srv/b', 'local:///srv/c', 'file:///srv/a.zip'] }],
  ['a URL', { py_modules: ['https://x.example/a.zip'] }],
  ['a URL after a path', { working_dir: '/srv://b' }],
  ['an empty working_dir', { working_dir: '' }],
  ['an empty module', { py_modules: [''] }],
  ['variables', { env_vars: { A: 'b', _c: '' } }],
  ['a variable of the platform', { env_vars: { ROOKERY_TENANT: 'x' } }],
  ['a variable that is a number', { env_vars: { A: 1 } }],
])('the description allows exactly what the reader accepts: %s', (_name, value) => {
  let isRead = true;
  try {
    read(value);
  } catch {
    isRead = false;
  }
  expect(Check(RUNTIME_ENV.describe({ nulls: true }), value)).toBe(isRead);
});
