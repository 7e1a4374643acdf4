import { texts } from '../core/setting.ts';

/** Settings that restrict who may change pools, and which images their pods may run. */
export const POOL_SETTINGS = {
  'pools.tenants': texts({
    default: [],
    pattern: /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/,
    shape: 'tenants',
    doc: 'With authentication on, the tenants whose developers may create, change and delete pools, in which instances of all tenants run, and see the values of their environments.',
    example: '[platform]',
  }),
  'pools.images': texts({
    default: [],
    defaultText: 'the image of the installation',
    pattern: /^[A-Za-z0-9][A-Za-z0-9._\-/:@]{0,199}$/,
    shape: 'names of images of at most 200 characters',
    doc: 'With authentication on, the images that pools may name as `image` and `init_image`, compared exactly. A pool with another image keeps no pods.',
    example: '[registry.example.com/rookery:0.1.0, registry.example.com/science:3]',
  }),
} as const;
