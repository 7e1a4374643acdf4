import { choice, integer, text } from '../core/setting.ts';

/** Settings for dependencies that files beside the code declare. */
export const DEPENDENCY_SETTINGS = {
  'dependencies.network': choice(['host', 'none'], {
    default: 'host',
    doc: 'The network of a build; `none` uses existing builds only.',
    example: 'none',
  }),
  'dependencies.pythonIndex': text({
    default: '',
    defaultText: 'what pip of this machine is configured with',
    pattern: /^(https?:\/\/\S+)?$/,
    shape: 'a URL such as https://pypi.example.com/simple',
    doc: 'The index of Python packages. Installed code can read it, including a password in it.',
    example: 'https://pypi.example.com/simple',
  }),
  'dependencies.npmRegistry': text({
    default: '',
    defaultText: 'what npm of this machine is configured with',
    pattern: /^(https?:\/\/\S+)?$/,
    shape: 'a URL such as https://npm.example.com',
    doc: 'The registry of JavaScript packages.',
    example: 'https://npm.example.com',
  }),
  'dependencies.timeoutSeconds': integer({
    default: 600,
    min: 1,
    max: 86_400,
    unit: 'seconds',
    doc: 'How long a build may take.',
    example: '1800',
  }),
  'dependencies.memoryMb': integer({
    default: 2048,
    min: 64,
    max: 1_048_576,
    unit: 'MiB',
    doc: 'How much memory a build may have.',
    example: '4096',
  }),
  'dependencies.maxMb': integer({
    default: 4096,
    min: 1,
    max: 1_048_576,
    unit: 'MiB',
    doc: 'The largest size of the dependencies of one code directory; `process.diskMb` limits a build too.',
    example: '1024',
  }),
  'dependencies.cacheMb': integer({
    default: 10_240,
    min: 0,
    max: 10_485_760,
    unit: 'MiB',
    doc: 'Disk for dependencies that no instance uses. The oldest are deleted first, and built again when needed.',
    example: '2048',
  }),
  'dependencies.keepHours': integer({
    default: 168,
    min: 1,
    max: 8760,
    unit: 'hours',
    doc: 'How long unused dependencies, and the log of a build, are kept.',
    example: '24',
  }),
} as const;
