#!/bin/sh
# Makes keys/: an authority, certificates for 127.0.0.1 that it has signed, and a key pair for each of two nodes.
# For other machines, put their names in place of localhost, and let each node make its own.
set -e
mkdir keys
cd keys
new="-newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -days 365"
openssl req -x509 $new -subj /CN=authority -keyout ca.key -out ca.crt \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
for name in server node; do
    openssl req -x509 $new -CA ca.crt -CAkey ca.key -subj /CN=localhost -keyout $name.key -out $name.crt \
        -addext basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:localhost,IP:127.0.0.1
done
for number in 0 1; do
    ssh-keygen -q -t ecdsa -b 384 -N "" -C "" -f node$number
done
