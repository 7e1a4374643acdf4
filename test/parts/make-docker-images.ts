/** Makes the images of the docker tests and the clean Debian of the packages' tests, so that no test waits for it; the tests and `.ci/run` start this program. */
import { cleanRoot } from './clean-machine.ts';
import { IMAGES, type ImageName, imageFile } from './docker-images.ts';

for (const name of Object.keys(IMAGES) as ImageName[]) console.log(await imageFile(name));
console.log(await cleanRoot());
