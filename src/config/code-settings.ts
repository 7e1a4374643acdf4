import { integer, optionalText, text, texts } from '../core/setting.ts';

/** Settings for uploaded code, and for code from object stores. */
export const CODE_SETTINGS = {
  'code.cacheMb': integer({
    default: 2048,
    min: 0,
    max: 1_048_576,
    unit: 'MiB',
    doc: 'How much unused unpacked code is kept.',
    example: '512',
  }),
  'code.maxArchiveMb': integer({
    default: 512,
    min: 1,
    max: 65_536,
    unit: 'MiB',
    doc: 'The largest code package, and the largest archive from an object store.',
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
    doc: 'How many files and directories a code archive or a copy of code may contain.',
    example: '5000',
  }),
  'code.tenantMb': integer({
    default: 10_240,
    min: 1,
    max: 1_048_576,
    unit: 'MiB',
    doc: 'Disk for the code of a tenant on one replica: its packages, and everything unpacked, copied or built from code while in use. A create or upload above it is refused.',
    example: '2048',
  }),
  'code.keepHours': integer({
    default: 24,
    min: 1,
    max: 8760,
    unit: 'hours',
    doc: 'How long a code package without references is kept after its upload or last use.',
    example: '168',
  }),
  's3.endpoint': text({
    default: '',
    doc: 'The object store of functions with `storageType` `s3` and no `bucketUrl`.',
    example: 'https://s3.example.com',
  }),
  's3.allowedEndpoints': texts({
    default: [],
    pattern: /^https?:\/\/[^/\s]+$/,
    shape: 'origins such as https://s3.example.com',
    doc: 'Further object stores that a function may name in `bucketUrl`. The service contacts no other.',
    example: '[https://minio.example.com:9000]',
  }),
  's3.region': text({
    default: 'us-east-1',
    doc: 'The region in the signature of requests to the object store.',
    example: 'eu-central-1',
  }),
  's3.accessKeyId': text({
    default: '',
    doc: 'The key id for the object store; a function may bring its own in `s3CodePath.token`.',
    example: 'rookery',
  }),
  's3.secretAccessKey': optionalText({
    default: null,
    doc: 'The secret of that key. Prefer the environment.',
    example: 'a secret',
    isSecret: true,
  }),
} as const;
