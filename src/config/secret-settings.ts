import { boolean, optionalPath, optionalText } from '../core/setting.ts';

/** Secrets, which environments refer to. */
export const SECRET_SETTINGS = {
  'secrets.keyFile': optionalPath({
    default: null,
    defaultText: '`secrets.key` in the data directory, made with the first secret; with `storage.url`: none',
    doc: 'A file with the key that secrets are encrypted with: 32 bytes in Base64 or hexadecimal (`openssl rand -base64 32`), for its owner only. Several keys stand on lines of their own: the first encrypts, all decrypt. Replicas need the same.',
    example: '/etc/rookery/secrets.key',
  }),
  'secrets.key': optionalText({
    default: null,
    doc: 'The same as a text, for the environment.',
    example: 'a key of 32 bytes in Base64',
    isSecret: true,
  }),
  'secrets.keyCommand': optionalText({
    default: null,
    doc: 'A command for `/bin/sh -c` that prints the same, once at each start: how a key comes from a vault.',
    example: 'vault kv get -field=key secret/rookery',
    isSecret: true,
  }),
  'secrets.allowUnreadable': boolean({
    default: false,
    doc: 'Whether the service starts although stored secrets are encrypted with keys that it does not have. What refers to them then fails to start until they are set again; they can be deleted too.',
    example: 'true',
  }),
} as const;
