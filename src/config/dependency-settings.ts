import { choice, integer, text } from '../core/setting.ts';

/** What is installed for code from the files beside it. */
export const DEPENDENCY_SETTINGS = {
  'dependencies.network': choice(['host', 'none'], {
    default: 'host',
    doc: 'What a build reaches: `host`: what the host reaches, over a network as other sandboxes have it; `none`: nothing is built, and only what has been built before is used.',
    example: 'none',
  }),
  'dependencies.pythonIndex': text({
    default: '',
    defaultText: 'what pip of this machine is configured with',
    pattern: /^(https?:\/\/\S+)?$/,
    shape: 'a URL such as https://pypi.example.com/simple',
    doc: 'The index that packages of Python come from. Code that is installed can read it, with a password in it.',
    example: 'https://pypi.example.com/simple',
  }),
  'dependencies.npmRegistry': text({
    default: '',
    defaultText: 'what npm of this machine is configured with',
    pattern: /^(https?:\/\/\S+)?$/,
    shape: 'a URL such as https://npm.example.com',
    doc: 'The registry that packages of JavaScript come from.',
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
    doc: 'How large the dependencies of one code may be. While it is built, `process.diskMb` bounds it too.',
    example: '1024',
  }),
  'dependencies.cacheMb': integer({
    default: 10_240,
    min: 0,
    max: 10_485_760,
    unit: 'MiB',
    doc: 'How much the dependencies may have together that nothing runs with. The oldest go first, and are built again when they are needed.',
    example: '2048',
  }),
  'dependencies.keepHours': integer({
    default: 168,
    min: 1,
    max: 8760,
    unit: 'hours',
    doc: 'How long dependencies are kept that nothing runs with, after their last use; and the log of a build.',
    example: '24',
  }),
} as const;
