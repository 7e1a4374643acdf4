import { IMAGES } from '../parts/docker-images.ts';
import { sharedDocker } from '../parts/docker-shared.ts';
import { describeFlow } from './flow.ts';

const ofImages = {
  parts: ['docker'],
  serviceArgs: async () => ['--set', `docker.host=${(await sharedDocker()).host}`],
  env: async () => ({
    DOCKER_HOST: (await sharedDocker()).host,
    DEBIAN_IMAGE: IMAGES.python,
    PLAIN_IMAGE: IMAGES.plain,
  }),
} as const;

describeFlow('templates of images with the Python SDK', {
  file: 'image-templates.py',
  environment: 'python',
  ...ofImages,
});
describeFlow('templates of images with the JavaScript SDK', {
  file: 'image-templates.mjs',
  environment: 'node',
  ...ofImages,
});
