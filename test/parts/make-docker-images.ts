/**
 * Makes the images of the Docker tests and the clean Debian of the package tests before any test waits for
 * them. The tests and `.ci/run` start this program.
 */
import { cleanRoot } from './clean-machine.ts';
import { IMAGES, type ImageName, imageFile } from './docker-images.ts';

for (const name of Object.keys(IMAGES) as ImageName[]) console.log(await imageFile(name));
console.log(await cleanRoot());
