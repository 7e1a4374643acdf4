import { integer, optionalText, text, texts } from '../core/setting.ts';

/** Code that was uploaded, and code from object stores. */
export const CODE_SETTINGS = {
  'code.cacheMb': integer({
    default: 2048,
    min: 0,
    max: 1_048_576,
    unit: 'MiB',
    doc: 'How much unpacked code, of packages and from object stores, is kept when no instance uses it.',
    example: '512',
  }),
  'code.maxArchiveMb': integer({
    default: 512,
    min: 1,
    max: 65_536,
    unit: 'MiB',
    doc: 'The largest code package that is taken, and the largest archive that is fetched from an object store.',
    example: '64',
  }),
  'code.maxUnpackedMb': integer({
    default: 2048,
    min: 1,
    max: 65_536,
    unit: 'MiB',
    doc: 'The largest code archive, unpacked, and the largest copy of code (`storageType: copy`).',
    example: '256',
  }),
  'code.maxEntries': integer({
    default: 50_000,
    min: 1,
    max: 1_000_000,
    unit: 'files and directories',
    doc: 'How many files and directories a code archive, or a copy of code, may hold.',
    example: '5000',
  }),
  'code.tenantMb': integer({
    default: 10_240,
    min: 1,
    max: 1_048_576,
    unit: 'MiB',
    doc: 'How much all code packages of a tenant may have together, as they were uploaded.',
    example: '2048',
  }),
  'code.keepHours': integer({
    default: 24,
    min: 1,
    max: 8760,
    unit: 'hours',
    doc: 'How long a code package stays that no function and no agent refers to, after its upload or its last use.',
    example: '168',
  }),
  's3.endpoint': text({
    default: '',
    doc: 'The object store of functions whose `storageType` is `s3` and that name no `bucketUrl`.',
    example: 'https://s3.example.com',
  }),
  's3.allowedEndpoints': texts({
    default: [],
    pattern: /^https?:\/\/[^/\s]+$/,
    shape: 'origins such as https://s3.example.com',
    doc: 'Further object stores that a function may name in `bucketUrl`. No other address is asked.',
    example: '[https://minio.example.com:9000]',
  }),
  's3.region': text({
    default: 'us-east-1',
    doc: 'The region that requests to the object store are signed for.',
    example: 'eu-central-1',
  }),
  's3.accessKeyId': text({
    default: '',
    doc: 'The key id for the object store; a function may bring its own in `s3CodePath.token`.',
    example: 'rookery',
  }),
  's3.secretAccessKey': optionalText({
    default: null,
    doc: 'The secret of that key. Best given by the environment.',
    example: 'a secret',
    isSecret: true,
  }),
} as const;
