import { boolean, optionalPath, optionalText } from '../core/setting.ts';

/** Settings of secrets, to which environments refer. */
export const SECRET_SETTINGS = {
  'secrets.keyFile': optionalPath({
    default: null,
    defaultText: '`secrets.key` in the data directory, made with the first secret; with `storage.url`: none',
    doc: 'A file with the key of secrets: 32 bytes in Base64 or hexadecimal (`openssl rand -base64 32`), readable by its owner only. Of several lines the first key encrypts, and all decrypt. All replicas need the same file.',
    example: '/etc/rookery/secrets.key',
  }),
  'secrets.key': optionalText({
    default: null,
    doc: 'The content of such a file as text, for the environment.',
    example: 'a key of 32 bytes in Base64',
    isSecret: true,
  }),
  'secrets.keyCommand': optionalText({
    default: null,
    doc: 'A command for `/bin/sh -c` that prints the content of such a file, run once at each start, for example to read a vault.',
    example: 'vault kv get -field=key secret/rookery',
    isSecret: true,
  }),
  'secrets.allowUnreadable': boolean({
    default: false,
    doc: 'Whether the service starts although it lacks the keys of stored secrets. Code that uses them fails to start until they are set again.',
    example: 'true',
  }),
} as const;
